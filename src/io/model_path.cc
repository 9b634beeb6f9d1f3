#include "io/model_path.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "base/env.h"
#include "io/files.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// Where a name leads within one folder, or nothing.
std::optional<std::string> look_in(const fs::path& folder, const std::string& name) {
  const fs::path plain = folder / name;
  if (is_folder(plain)) {
    if (path_exists(plain / "config.json")) return plain.string();
    if (const auto gguf = find_gguf_in(plain.string())) return *gguf;
  } else if (path_exists(plain)) {
    return plain.string();
  }
  const fs::path file = folder / (name + ".gguf");
  if (path_exists(file)) return file.string();
  return std::nullopt;
}

}  // namespace

std::vector<std::string> model_search_dirs() {
  std::vector<std::string> dirs;
  if (const auto own = env::models_dir()) dirs.push_back(*own);
  dirs.emplace_back("models");
  if (const auto cache = env::cache_home()) {
    dirs.push_back((fs::path(*cache) / "millrace" / "models").string());
  } else if (const auto home = env::home()) {
    dirs.push_back((fs::path(*home) / ".cache" / "millrace" / "models").string());
  }
  std::error_code unknown;  // then the path is empty
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown);
  for (std::string& dir : shipped_model_dirs(program.string())) dirs.push_back(std::move(dir));
  return dirs;
}

std::vector<std::string> shipped_model_dirs(const std::string& program) {
  if (program.empty()) return {};
  const fs::path above = fs::path(program).parent_path().parent_path();
  return {(above / "models").string(), (above / "share" / "millrace" / "models").string()};
}

Result<std::string> resolve_model_path(std::string_view name,
                                       const std::vector<std::string>& dirs) {
  if (name.empty()) return fail("the model's name is empty; expected a path or a name");
  std::string wanted(name);
  if (path_exists(wanted)) return wanted;
  // A path that leads nowhere is not searched for elsewhere.
  const bool is_name = wanted.find('/') == std::string::npos && wanted != "..";
  if (!is_name) return fail("{}: no such file or folder", wanted);
  for (const std::string& dir : dirs) {
    if (const auto found = look_in(dir, wanted)) return *found;
  }
  return fail("{}: no such file or folder, and no model of this name in {}", wanted,
              fmt::join(dirs, ", "));
}

Result<std::string> find_gguf_in(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string file = it->path().filename().string();
    if (!file.ends_with(".gguf")) continue;
    // Of a split model only the first part counts.
    const size_t of = file.rfind("-of-");
    const bool later_part = of != std::string::npos && of >= 6 && file[of - 6] == '-' &&
                            file.substr(of - 5, 5) != "00001";
    if (!later_part) found.push_back(it->path().string());
  }
  if (error) return fail("{}: cannot be listed: {}", folder, error.message());
  if (found.empty()) return fail("{}: no .gguf file in this folder", folder);
  if (found.size() > 1) {
    return fail("{}: {} GGUF models in this folder; name one of them", folder, found.size());
  }
  return found.front();
}

}  // namespace millrace
