// Finds the files of a model that was given by path or by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace millrace {

// The folders in which names are looked up, in order: MILLRACE_MODELS, ./models, millrace/models in
// the cache folder (XDG_CACHE_HOME, or ~/.cache), and shipped_model_dirs() of this program.
std::vector<std::string> model_search_dirs();

// Where the models that come with Millrace are, seen from the file of the program: models beside
// its folder (build/millrace in the source tree), or share/millrace/models there (bin/millrace of
// an installation). Whether they exist is not looked at. Nothing for an empty path.
std::vector<std::string> shipped_model_dirs(const std::string& program);

// A path that exists is itself. Otherwise `name` is looked for in `dirs` as NAME (a folder or
// file), NAME.gguf, and, if NAME is a folder without config.json, the GGUF model in it. The error
// lists where it looked.
Result<std::string> resolve_model_path(std::string_view name, const std::vector<std::string>& dirs);

// The GGUF model in a folder: its only .gguf file, or the first part of its only split model.
// Error: none or several.
Result<std::string> find_gguf_in(const std::string& folder);

}  // namespace millrace
