// JSON values in words, for error messages.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace millrace {

// `"abc"`, `7`, `null`, `an array of 3`: one line; long values are cut.
std::string describe(const nlohmann::json& value);

// A text from a file, fit for a message: control characters become spaces, and what is long is cut
// at the end of a UTF-8 character.
std::string one_short_line(std::string_view text);

}  // namespace millrace
