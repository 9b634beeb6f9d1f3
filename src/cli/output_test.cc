#include "cli/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "cli/chat.h"
#include "cli/jsonl.h"

namespace millrace {
namespace {

TEST(Output, AFullDiskIsAnError) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) GTEST_SKIP() << "no /dev/full here";
  std::fflush(stdout);
  const int saved = ::dup(STDOUT_FILENO);
  ::dup2(full, STDOUT_FILENO);
  const Result<> text = write_stdout("text");
  const Result<> row = print_row({{"a", 1}});
  ::dup2(saved, STDOUT_FILENO);
  ::close(saved);
  ::close(full);
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().message.find("cannot write"), std::string::npos) << text.error().message;
  EXPECT_FALSE(row);
}

TEST(Output, ErrorsAreOneLine) {
  testing::internal::CaptureStderr();
  print_error({"it broke"});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "millrace: error: it broke\n");
  testing::internal::CaptureStderr();
  print_error({"a\nb\x1b[2J: no such file"});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "millrace: error: a b [2J: no such file\n");
}

TEST(Chat, SystemMessageWithoutATemplateHasItsOwnLines) {
  EXPECT_EQ(plain_prompt("", "Hi"), "Hi");
  EXPECT_EQ(plain_prompt("Be brief.", "Hi"), "Be brief.\nHi");
}

}  // namespace
}  // namespace millrace
