#include "io/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <utility>

#include "io/test_files.h"

namespace millrace {
namespace {

using testing::TempFolder;

TEST(MappedFile, ReadsAndMoves) {
  const TempFolder folder;
  auto file = MappedFile::open(folder.write("a", "hello"));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->size(), 5);
  const std::byte* address = file->bytes().data();
  MappedFile moved = std::move(*file);
  EXPECT_EQ(moved.bytes().data(), address);
  EXPECT_EQ(std::memcmp(moved.bytes().data(), "hello", 5), 0);
  EXPECT_EQ(moved.path(), folder.file("a"));
}

TEST(MappedFile, BadFilesAreErrors) {
  const TempFolder folder;
  EXPECT_EQ(MappedFile::open(folder.file("none")).error().message,
            folder.file("none") + ": no such file");
  EXPECT_EQ(MappedFile::open(folder.path()).error().message,
            folder.path() + ": is a folder, expected a file");
  EXPECT_EQ(MappedFile::open(folder.write("empty", "")).error().message,
            folder.file("empty") + ": the file is empty");
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(folder.file("pipe")).error().message,
            folder.file("pipe") + ": is not a regular file");
}

TEST(MappedFile, ReleasedPagesReadTheSame) {
  const TempFolder folder;
  const std::string text(100000, 'x');
  const auto file = MappedFile::open(folder.write("a", text));
  ASSERT_TRUE(file);
  const auto read = [&] {
    return std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  };
  EXPECT_EQ(read(), text);
  file->release(5000, 90000);
  file->release(0, 100000);
  file->release(99999, 1);
  file->release(0, 0);
  file->release(-5, 10);
  EXPECT_EQ(read(), text);
}

}  // namespace
}  // namespace millrace
