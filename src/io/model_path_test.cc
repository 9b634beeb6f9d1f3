#include "io/model_path.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/env.h"
#include "io/test_files.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;

TEST(ModelPath, NamesAreFoundInTheFoldersInOrder) {
  const TempFolder first;
  const TempFolder second;
  const std::vector<std::string> dirs = {first.path(), second.path()};
  second.write("a.gguf", "x");
  EXPECT_EQ(*resolve_model_path("a", dirs), second.file("a.gguf"));
  EXPECT_EQ(*resolve_model_path("a.gguf", dirs), second.file("a.gguf"));
  first.write("a.gguf", "x");
  EXPECT_EQ(*resolve_model_path("a", dirs), first.file("a.gguf"));

  fs::create_directory(second.file("b"));
  second.write("b/model-Q4.gguf", "x");
  EXPECT_EQ(*resolve_model_path("b", dirs), second.file("b") + "/model-Q4.gguf");
  second.write("b/config.json", "{}");
  EXPECT_EQ(*resolve_model_path("b", dirs), second.file("b"));
}

TEST(ModelPath, AnExistingPathIsItself) {
  const TempFolder folder;
  EXPECT_EQ(*resolve_model_path(folder.path(), {}), folder.path());
}

TEST(ModelPath, ErrorsSayWhereItLooked) {
  EXPECT_EQ(resolve_model_path("none", {"/x", "/y"}).error().message,
            "none: no such file or folder, and no model of this name in /x, /y");
  EXPECT_EQ(resolve_model_path("/no/such", {"/x"}).error().message,
            "/no/such: no such file or folder");
  EXPECT_EQ(resolve_model_path("", {"/x"}).error().message,
            "the model's name is empty; expected a path or a name");
}

TEST(ModelPath, FoldersComeFromTheEnvironment) {
  const auto kept_models = env::models_dir();
  const auto kept_cache = env::cache_home();
  setenv("MILLRACE_MODELS", "/own", 1);
  setenv("XDG_CACHE_HOME", "/cache", 1);
  std::vector<std::string> expected = {"/own", "models", "/cache/millrace/models"};
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  for (const std::string& dir : shipped_model_dirs(program)) expected.push_back(dir);
  EXPECT_EQ(expected.size(), 5U);
  EXPECT_EQ(model_search_dirs(), expected);
  unsetenv("MILLRACE_MODELS");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(model_search_dirs().front(), "models");
  if (kept_models) setenv("MILLRACE_MODELS", kept_models->c_str(), 1);
  if (kept_cache) setenv("XDG_CACHE_HOME", kept_cache->c_str(), 1);
}

TEST(ModelPath, ShippedModelsAreFoundFromTheProgram) {
  EXPECT_EQ(
      shipped_model_dirs("/src/millrace/build/millrace"),
      (std::vector<std::string>{"/src/millrace/models", "/src/millrace/share/millrace/models"}));
  EXPECT_EQ(shipped_model_dirs("/usr/bin/millrace").back(), "/usr/share/millrace/models");
  EXPECT_TRUE(shipped_model_dirs("").empty());

  const TempFolder root;
  fs::create_directories(root.file("share/millrace/models/tiny"));
  root.write("share/millrace/models/tiny/config.json", "{}");
  EXPECT_EQ(*resolve_model_path("tiny", shipped_model_dirs(root.file("bin/millrace"))),
            root.file("share/millrace/models/tiny"));
}

TEST(ModelPath, OneModelInAFolder) {
  const TempFolder folder;
  EXPECT_FALSE(find_gguf_in(folder.path()));
  folder.write("m-00001-of-00002.gguf", "x");
  folder.write("m-00002-of-00002.gguf", "x");
  folder.write("notes.txt", "x");
  EXPECT_EQ(*find_gguf_in(folder.path()), folder.file("m-00001-of-00002.gguf"));
  folder.write("other.gguf", "x");
  EXPECT_EQ(find_gguf_in(folder.path()).error().message,
            folder.path() + ": 2 GGUF models in this folder; name one of them");
}

}  // namespace
}  // namespace millrace
