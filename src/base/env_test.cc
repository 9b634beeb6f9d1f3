// Environment variables: set, unset and empty.
#include "base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace millrace::env {
namespace {

// Sets a variable for the length of a test and restores what was there.
class Variable {
 public:
  explicit Variable(const char* name) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
  }
  ~Variable() {
    if (old_) {
      set(old_->c_str());
    } else {
      unset();
    }
  }
  void set(const char* value) { setenv(name_, value, 1); }
  void unset() { unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(Env, EachFunctionReadsItsVariable) {
  const std::pair<const char*, std::optional<std::string> (*)()> table[] = {
      {"MILLRACE_ISA", isa},
      {"MILLRACE_LOG", log_level},
      {"MILLRACE_MODELS", models_dir},
      {"XDG_CACHE_HOME", cache_home},
      {"HOME", home},
      {"MILLRACE_FUZZ_SECONDS", fuzz_seconds},
      {"MILLRACE_TEST_SELECTION", test_selection},
  };
  for (const auto& [name, read] : table) {
    Variable variable(name);
    variable.set("some value");
    EXPECT_EQ(read(), "some value") << name;
    variable.set("");
    EXPECT_EQ(read(), std::nullopt) << name;
    variable.unset();
    EXPECT_EQ(read(), std::nullopt) << name;
  }
}

TEST(Env, PlainTerminal) {
  Variable no_color("NO_COLOR"), term("TERM");
  no_color.unset();
  term.set("xterm");
  EXPECT_FALSE(plain_terminal());
  term.set("dumb");
  EXPECT_TRUE(plain_terminal());
  term.set("xterm");
  no_color.set("1");
  EXPECT_TRUE(plain_terminal());
}

}  // namespace
}  // namespace millrace::env
