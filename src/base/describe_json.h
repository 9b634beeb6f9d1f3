// JSON values in words, for error messages.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace millrace {

// `"abc"`, `7`, `null`, `an array of 3`: one line; long values are cut.
std::string describe(const nlohmann::json& value);

}  // namespace millrace
