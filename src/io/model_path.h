// Finds the files of a model that was given by path or by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace millrace {

// The folders in which names are looked up, in order: MILLRACE_MODELS, ./models, and
// millrace/models in the cache folder (XDG_CACHE_HOME, or ~/.cache).
std::vector<std::string> model_search_dirs();

// A path that exists is itself. Otherwise `name` is looked for in `dirs` as NAME (a folder or
// file), NAME.gguf, and, if NAME is a folder without config.json, the GGUF model in it. The error
// lists where it looked.
Result<std::string> resolve_model_path(std::string_view name, const std::vector<std::string>& dirs);

// The GGUF model in a folder: its only .gguf file, or the first part of its only split model.
// Error: none or several.
Result<std::string> find_gguf_in(const std::string& folder);

}  // namespace millrace
