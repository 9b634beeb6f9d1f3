#include "io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "io/test_files.h"

namespace millrace {
namespace {

using testing::ByteWriter;
using testing::TempFolder;

std::vector<std::byte> file_of(std::string_view header, size_t data_bytes) {
  return ByteWriter().string(header).raw(std::vector<std::byte>(data_bytes)).bytes();
}

std::string error_of(std::string_view header, size_t data_bytes) {
  const auto bytes = file_of(header, data_bytes);
  const auto result = parse_safetensors(bytes);
  return result ? "no error" : result.error().message;
}

TEST(Safetensors, StoppedWritingLeavesNothing) {
  const TempFolder folder;
  SafetensorsWriter writer;
  writer.add("large", DType::kU8, {20 << 20}, std::vector<uint8_t>(20 << 20));
  const std::string path = folder.file("a.safetensors");
  int asked = 0;
  const auto written = writer.write(path, [&asked] { return ++asked > 3; });
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message, fmt::format("stopped; {} is not written", path));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(Safetensors, WritesAndReadsBack) {
  const TempFolder folder;
  SafetensorsWriter writer;
  writer.add("ids", DType::kI32, {3}, std::vector<int32_t>{1, 2, 3});
  writer.add("flags", DType::kU8, {1}, std::vector<uint8_t>{7});
  writer.add("logits", DType::kF32, {2, 2}, std::vector<float>{1, 2, 3, 4});
  writer.add("half", DType::kF16, {1, 1}, std::vector<uint16_t>{0x3c00});
  writer.add("none", DType::kI64, {0, 5}, std::vector<int64_t>{});
  writer.add("scalar", DType::kF64, {}, std::vector<double>{2.5});
  const std::string path = folder.file("a.safetensors");
  ASSERT_TRUE(writer.write(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));

  const auto file = Safetensors::open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors().size(), 6u);
  const auto* logits = file->find("logits");
  ASSERT_NE(logits, nullptr);
  EXPECT_EQ(logits->dtype, DType::kF32);
  EXPECT_EQ(logits->shape, (std::vector<int64_t>{2, 2}));
  // Aligned to its elements, as the header is padded and wide elements come first.
  EXPECT_EQ(reinterpret_cast<uintptr_t>(logits->bytes.data()) % 4, 0u);
  float values[4];
  std::memcpy(values, logits->bytes.data(), sizeof values);
  EXPECT_EQ(values[3], 4.0f);
  EXPECT_EQ(file->find("none")->bytes.size(), 0u);
  EXPECT_EQ(file->find("scalar")->bytes.size(), 8u);
  EXPECT_EQ(file->find("missing"), nullptr);
}

TEST(Safetensors, MetadataIsRead) {
  const auto bytes = file_of(R"({"__metadata__":{"format":"pt"}})", 0);
  const auto header = parse_safetensors(bytes);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->metadata.at("format"), "pt");
}

TEST(Safetensors, WritingWhereNobodyCanIsAnError) {
  SafetensorsWriter writer;
  const auto result = writer.write("/nonexistent-folder/a.safetensors");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message,
            "/nonexistent-folder/a.safetensors: cannot be written: No such file or directory");
}

TEST(Safetensors, WritingFollowsLinksAndReplacesOnlyFiles) {
  const TempFolder folder;
  SafetensorsWriter writer;
  writer.add("x", DType::kI32, {1}, std::vector<int32_t>{7});
  const std::string target = folder.file("target.safetensors");
  const std::string link = folder.file("link.safetensors");
  std::filesystem::create_symlink(target, link);
  ASSERT_TRUE(writer.write(link));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(Safetensors::open(target));
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, folder.path()}) {
    const auto written = writer.write(path);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().message,
              path +
                  ": is not a regular file; a safetensors file is written whole and cannot "
                  "replace it");
  }
  EXPECT_FALSE(writer.write(""));
}

TEST(Safetensors, ReadsPublishedTypes) {
  const auto bytes = file_of(R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"F8_E4M3","shape":[3,1],"data_offsets":[4,7]},)"
                             R"("c":{"dtype":"BOOL","shape":[1],"data_offsets":[7,8]}})",
                             8);
  const auto header = parse_safetensors(bytes);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->tensors[1].dtype, DType::kF8E4M3);
  EXPECT_EQ(header->tensors[2].dtype, DType::kBool);
}

TEST(Safetensors, DamagedHeadersAreErrors) {
  struct Row {
    const char* header;
    size_t data_bytes;
    const char* message;
  };
  const Row table[] = {
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7,
       "tensor a: its data end at byte 8 of 7: the file is cut off"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9,
       "the tensors cover 8 bytes of data, the file has 9"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8,
       "tensor a: [3] of float32 does not take the 8 bytes that data_offsets give it"},
      {R"({"a":{"dtype":"U32","shape":[2],"data_offsets":[0,8]}})", 8,
       "tensor a: element type \"U32\" is not supported"},
      {R"({"a":{"dtype":5,"shape":[2],"data_offsets":[0,8]}})", 8,
       "tensor a: element type 5 is not supported"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8,
       "tensor a: size -2 in its shape is not valid"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
       "tensor a: [4611686018427387904, 4] of float32 does not take the 0 bytes that data_offsets "
       "give it"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", 8,
       "tensor a: size 18446744073709551615 in its shape is not valid"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}})", 8,
       "tensor a: shape is an array of 9, expected an array of at most 8 sizes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8,
       "tensor a: data_offsets are not valid: an array of 2"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "tensor b: its data begin at byte 1, expected 2: tensors overlap or leave a gap"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
       5, "tensor b: its data begin at byte 3, expected 2: tensors overlap or leave a gap"},
      {R"({"a\nb":7})", 0, "a tensor's name is not valid: \"a b\""},
      {R"({"a":7})", 0, "tensor a: expected an object with dtype, shape and data_offsets, found 7"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__.a is 1, expected a string"},
      {R"([])", 0, "header is an array of 0, expected an object"},
      {R"({"a":)", 0, "header: line 1, column 6: not valid JSON"},
      {R"({"a":[[[[1]]]]})", 0, "header: line 1, column 9: nested deeper than 4 levels"},
  };
  for (const Row& row : table) EXPECT_EQ(error_of(row.header, row.data_bytes), row.message);
}

TEST(Safetensors, HeaderLengthsAreChecked) {
  const auto parse = [](const ByteWriter& writer) {
    return parse_safetensors(writer.bytes()).error().message;
  };
  EXPECT_EQ(parse(ByteWriter().number<uint32_t>(1)),
            "4 bytes are no safetensors file: the header alone takes more");
  EXPECT_EQ(parse(ByteWriter().number<uint64_t>(10).raw(std::string_view("{}"))),
            "the header takes 10 bytes, the file has 2 after the length: it is cut off");
  EXPECT_EQ(parse(ByteWriter().number<uint64_t>(UINT64_MAX)),
            "not a safetensors file: its header would take 18446744073709551615 bytes, at most "
            "104857600 are read");
}

class ShardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SafetensorsWriter one;
    one.add("a", DType::kU8, {1}, std::vector<uint8_t>{1});
    ASSERT_TRUE(one.write(folder_.file("one.safetensors")));
    SafetensorsWriter two;
    two.add("b", DType::kU8, {1}, std::vector<uint8_t>{2});
    ASSERT_TRUE(two.write(folder_.file("two.safetensors")));
  }
  std::string error_of(std::string_view index) {
    folder_.write("model.safetensors.index.json", index);
    const auto result = Safetensors::open(folder_.path());
    if (result) return "no error";
    // The messages name the index; it is the same in all.
    const std::string prefix = folder_.file("model.safetensors.index.json") + ": ";
    const std::string& message = result.error().message;
    return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
  }
  TempFolder folder_;
};

TEST_F(ShardTest, ShardsAreOneModel) {
  folder_.write("model.safetensors.index.json",
                R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const auto model = Safetensors::open(folder_.path());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->files().size(), 2u);
  EXPECT_EQ(model->find("b")->bytes[0], std::byte{2});
}

TEST_F(ShardTest, BrokenIndexesAreErrors) {
  EXPECT_EQ(error_of(R"({"weight_map":{"a":"one.safetensors","b":"three.safetensors"}})"),
            "names the shard three.safetensors, which is not in the folder: download it again");
  EXPECT_EQ(error_of(R"({"weight_map":{"a":"one.safetensors","c":"two.safetensors"}})"),
            "tensor c should be in two.safetensors, but is not there");
  EXPECT_EQ(error_of(R"({"weight_map":{"a":"two.safetensors","b":"one.safetensors"}})"),
            "tensor a should be in two.safetensors, but is not there");
  EXPECT_EQ(error_of(R"({"weight_map":{"a":"../one.safetensors"}})"),
            "tensor a: file \"../one.safetensors\" must be a name in the same folder");
  EXPECT_EQ(error_of(R"({"weight_map":{"a":3}})"), "tensor a: file is 3, expected a string");
  EXPECT_EQ(error_of(R"({"weight_map":{}})"), "the weight_map is empty");
  EXPECT_EQ(error_of(R"({"weights":1})"), "expected an object with a weight_map");
  EXPECT_EQ(error_of(R"({)"), "line 1, column 2: not valid JSON");
}

TEST_F(ShardTest, ATensorInTwoShardsIsAnError) {
  std::filesystem::copy_file(folder_.file("one.safetensors"), folder_.file("copy.safetensors"));
  EXPECT_EQ(error_of(R"({"weight_map":{"a":"one.safetensors","b":"copy.safetensors"}})"),
            folder_.file("one.safetensors") + ": tensor a is in " +
                folder_.file("copy.safetensors") + " too");
}

TEST_F(ShardTest, AFolderWithoutModelIsAnError) {
  EXPECT_EQ(
      Safetensors::open(folder_.path()).error().message,
      folder_.path() + ": no model.safetensors and no model.safetensors.index.json in this folder");
}

}  // namespace
}  // namespace millrace
