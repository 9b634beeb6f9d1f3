#include "io/gguf.h"

#include <gtest/gtest.h>

#include "io/test_files.h"

namespace millrace {
namespace {

using testing::ByteWriter;
using testing::GgufBuilder;
using testing::TempFolder;

std::string error_of(const std::vector<std::byte>& bytes) {
  const auto result = parse_gguf(bytes);
  return result ? "no error" : result.error().message;
}

TEST(Gguf, ReadsEveryMetadataType) {
  GgufBuilder builder;
  builder.pair("u8", 0).number<uint8_t>(200);
  builder.pair("i8", 1).number<int8_t>(-3);
  builder.pair("u16", 2).number<uint16_t>(60000);
  builder.pair("i16", 3).number<int16_t>(-300);
  builder.pair("u32", 4).number<uint32_t>(4000000000u);
  builder.pair("i32", 5).number<int32_t>(-7);
  builder.pair("f32", 6).number<float>(0.5f);
  builder.pair("bool", 7).number<uint8_t>(1);
  builder.pair("string", 8).string("text");
  builder.pair("u64", 10).number<uint64_t>(UINT64_MAX);
  builder.pair("i64", 11).number<int64_t>(INT64_MIN);
  builder.pair("f64", 12).number<double>(1e-5);
  builder.pair("bools", 9).number<uint32_t>(7).number<uint64_t>(2).number<uint16_t>(0x0001);
  builder.pair("nested", 9)
      .number<uint32_t>(9)
      .number<uint64_t>(2)
      .number<uint32_t>(6)
      .number<uint64_t>(1)
      .number<float>(1.0f)
      .number<uint32_t>(6)
      .number<uint64_t>(0);
  const auto bytes = builder.build();
  const auto shard = parse_gguf(bytes);
  ASSERT_TRUE(shard) << shard.error().message;
  std::string all;
  for (const auto& [key, value] : shard->metadata.values()) all += describe(value) + ", ";
  EXPECT_EQ(all,
            "true, an array of 2, number 0.5, number 1e-05, integer -300, integer -7, "
            "integer -9223372036854775808, integer -3, an array of 2, string \"text\", "
            "integer 60000, integer 4000000000, integer 18446744073709551615, integer 200, ");
  const auto& bools = std::get<GgufArray>(*shard->metadata.find("bools"));
  EXPECT_EQ(std::get<std::vector<bool>>(bools.values), (std::vector<bool>{true, false}));
  const auto& outer = std::get<GgufArray>(*shard->metadata.find("nested"));
  const auto& arrays = std::get<std::vector<GgufArray>>(outer.values);
  ASSERT_EQ(arrays.size(), 2u);
  EXPECT_EQ(std::get<std::vector<double>>(arrays[0].values), std::vector<double>{1.0});
}

TEST(Gguf, GettersAreTyped) {
  GgufBuilder builder;
  builder.pair("u8", 0).number<uint8_t>(200);
  builder.pair("i8", 1).number<int8_t>(-3);
  builder.pair("f32", 6).number<float>(0.5f);
  builder.pair("bool", 7).number<uint8_t>(1);
  builder.string("string", "text");
  builder.pair("u64", 10).number<uint64_t>(UINT64_MAX);
  builder.pair("ints", 9).number<uint32_t>(5).number<uint64_t>(1).number<int32_t>(-1);
  builder.strings("strings", {"x", "", "yz"});
  const auto bytes = builder.build(2);
  const auto shard = parse_gguf(bytes);
  ASSERT_TRUE(shard) << shard.error().message;
  EXPECT_EQ(shard->version, 2);
  const GgufMetadata& metadata = shard->metadata;
  EXPECT_EQ(*metadata.get_int("u8"), 200);
  EXPECT_EQ(*metadata.get_int("i8"), -3);
  EXPECT_EQ(*metadata.find_float("f32"), 0.5);
  EXPECT_EQ(*metadata.find_float("i8"), -3.0);
  EXPECT_EQ(*metadata.find_bool("bool"), true);
  EXPECT_EQ(*metadata.get_string("string"), "text");
  EXPECT_EQ(*metadata.get_ints("ints"), std::vector<int64_t>{-1});
  EXPECT_EQ((*metadata.get_strings("strings"))->at(2), "yz");
  EXPECT_EQ(*metadata.find_int("none"), std::nullopt);
  EXPECT_EQ(metadata.get_int("u64").error().message,
            "metadata u64: found integer 18446744073709551615, expected an integer");
  EXPECT_EQ(metadata.get_int("none").error().message,
            "metadata none: missing, expected an integer");
  EXPECT_EQ(metadata.find_int("string").error().message,
            "metadata string: found string \"text\", expected an integer");
  EXPECT_EQ(metadata.get_strings("ints").error().message,
            "metadata ints: found an array of 1, expected an array of strings");
}

TEST(Gguf, TensorsAreRowMajorViews) {
  GgufBuilder builder = testing::small_llama();
  builder.tensor("norm", 0, {64}, 256).tensor("w", 2, {64, 3}, 3 * 36);
  const auto bytes = builder.build();
  const auto shard = parse_gguf(bytes);
  ASSERT_TRUE(shard) << shard.error().message;
  ASSERT_EQ(shard->tensors.size(), 2u);
  EXPECT_EQ(shard->tensors[1].shape, (std::vector<int64_t>{3, 64}));
  EXPECT_EQ(shard->tensors[1].format, WeightFormat::kQ4_0);
  EXPECT_EQ(shard->tensors[1].bytes.size(), 108u);
  EXPECT_EQ(shard->tensors[1].bytes[1], std::byte{7});
}

TEST(Gguf, AlignmentIsFollowed) {
  GgufBuilder builder;
  builder.u32("general.alignment", 8).tensor("w", 0, {2}, 8).tensor_at("v", 0, {2}, 8, 8);
  EXPECT_EQ(error_of(builder.build()), "no error");
  EXPECT_EQ(error_of(GgufBuilder().u32("general.alignment", 12).build()),
            "metadata general.alignment: found 12, expected a power of two up to 16777216");
  EXPECT_EQ(error_of(GgufBuilder().u32("general.alignment", 0).build()),
            "metadata general.alignment: found 0, expected a power of two up to 16777216");
  EXPECT_EQ(error_of(GgufBuilder().string("general.alignment", "x").build()),
            "metadata general.alignment: found string \"x\", expected an integer");
}

TEST(Gguf, DamagedFilesAreErrors) {
  const auto header = [](std::string_view magic, uint32_t version, uint64_t tensors,
                         uint64_t pairs) {
    return ByteWriter().raw(magic).number(version).number(tensors).number(pairs).bytes();
  };
  struct Row {
    std::vector<std::byte> bytes;
    const char* message;
  };
  GgufBuilder duplicate;
  duplicate.u32("a", 1).u32("a", 2);
  GgufBuilder huge_array;
  huge_array.pair("a", 9).number<uint32_t>(0).number<uint64_t>(uint64_t{1} << 40);
  GgufBuilder long_strings;
  long_strings.pair("a", 9).number<uint32_t>(8).number<uint64_t>(1000);
  GgufBuilder deep;
  ByteWriter& levels = deep.pair("a", 9);
  for (int i = 0; i < 5; ++i) levels.number<uint32_t>(9).number<uint64_t>(1);
  GgufBuilder unknown_type;
  unknown_type.pair("a", 13).number<uint64_t>(0);
  GgufBuilder bad_bool;
  bad_bool.pair("a", 7).number<uint8_t>(2);
  const Row table[] = {
      {header("GGML", 3, 0, 0), "not a GGUF file: it does not begin with \"GGUF\""},
      {ByteWriter().raw(std::string_view("GG")).bytes(),
       "the file ends at byte 2, within its header: it is cut off"},
      {header("GGUF", 1, 0, 0), "GGUF version 1, supported are 2 and 3: convert the model again"},
      {header("GGUF", 0x03000000, 0, 0), "a big-endian GGUF file: convert it to little-endian"},
      {header("GGUF", 3, UINT64_MAX, 0),
       "18446744073709551615 tensors cannot be in 0 bytes: the file is damaged or cut off"},
      {header("GGUF", 3, 0, 1),
       "1 metadata pairs cannot be in 0 bytes: the file is damaged or cut off"},
      {duplicate.build(), "metadata a: is there twice"},
      {huge_array.build(),
       "metadata a: arrays of more than 67108864 items in all; expected a vocabulary at most"},
      {long_strings.build(),
       "metadata a: the file ends at byte 64, within its header: it is cut off"},
      {deep.build(), "metadata a: arrays nest deeper than 4 levels"},
      {unknown_type.build(), "metadata a: value type 13 is not known"},
      {bad_bool.build(), "metadata a: found 2 where true (1) or false (0) is expected"},
      {GgufBuilder().u32("a\nb", 1).build(),
       "a metadata key at byte 24 is not valid: the file is damaged"},
      {GgufBuilder().tensor("w", 10, {256}, 84).build(),
       "tensor w: type Q2_K is not supported; supported: F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, "
       "Q4_K, Q5_K, Q6_K, BF16"},
      {GgufBuilder().tensor("w", 99, {256}, 84).build(),
       "tensor w: type number 99 is not supported; supported: F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, "
       "Q8_0, Q4_K, Q5_K, Q6_K, BF16"},
      {GgufBuilder().tensor("w", 2, {33}, 36).build(),
       "tensor w: rows of 33 are no whole blocks of Q4_0 (32 each)"},
      {GgufBuilder().tensor("w", 0, {4}, 15).build(),
       "tensor w: 16 bytes at 0 are beyond the file's 15 bytes of data: it is cut off"},
      {GgufBuilder().tensor("w", 0, {0}, 0).build(),
       "tensor w: size 0 of dimension 0 is not valid"},
      {GgufBuilder().tensor("w", 0, {1, 1, 1, 1, 1}, 4).build(),
       "tensor w: 5 dimensions, expected 1 to 4"},
      {GgufBuilder().tensor("w", 0, {uint64_t{1} << 40, uint64_t{1} << 40}, 4).build(),
       "tensor w: [1099511627776, 1099511627776] of F32 at 0 is larger than any file"},
      {GgufBuilder().tensor_at("w", 0, {1}, 4, 8).build(),
       "tensor w: its offset 4 is not a multiple of the alignment 32"},
      {GgufBuilder().tensor("w", 0, {16}, 64).tensor_at("v", 0, {1}, 32, 0).build(),
       "tensors w and v overlap in the file"},
  };
  for (const Row& row : table) EXPECT_EQ(error_of(row.bytes), row.message);
}

TEST(Gguf, EveryCutIsAnErrorAndNoCrash) {
  GgufBuilder builder = testing::small_llama();
  builder.tensor("w", 2, {64, 3}, 108);
  const auto whole = builder.build();
  ASSERT_EQ(error_of(whole), "no error");
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(error_of({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)}),
              "no error");
  }
}

TEST(Gguf, ATensorTwiceIsAnError) {
  const TempFolder folder;
  GgufBuilder builder;
  builder.tensor("w", 0, {1}, 4).tensor("w", 0, {1}, 4);
  const std::string path = folder.write("m.gguf", builder.build());
  EXPECT_EQ(Gguf::open(path).error().message, path + ": tensor w is there twice");
}

class SplitTest : public ::testing::Test {
 protected:
  std::string write_part(int part, int no, int count, int tensors) {
    GgufBuilder builder = part == 1 ? testing::small_llama() : GgufBuilder();
    builder.pair("split.no", 2).number<uint16_t>(static_cast<uint16_t>(no));
    builder.pair("split.count", 2).number<uint16_t>(static_cast<uint16_t>(count));
    builder.pair("split.tensors.count", 5).number<int32_t>(tensors);
    builder.tensor("w" + std::to_string(part), 0, {4}, 16);
    return folder_.write("m-0000" + std::to_string(part) + "-of-00003.gguf", builder.build());
  }
  TempFolder folder_;
};

TEST_F(SplitTest, AnyPartOpensTheWhole) {
  for (int part = 1; part <= 3; ++part) write_part(part, part - 1, 3, 3);
  for (int part = 1; part <= 3; ++part) {
    const auto model = Gguf::open(folder_.file("m-0000" + std::to_string(part) + "-of-00003.gguf"));
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->files().size(), 3u);
    EXPECT_EQ(model->tensors().size(), 3u);
    EXPECT_EQ(model->find("w3")->file, 2);
    EXPECT_EQ(*model->metadata().get_string("general.architecture"), "llama");
  }
}

TEST_F(SplitTest, MissingAndForeignPartsAreErrors) {
  const std::string first = write_part(1, 0, 3, 3);
  const std::string second = folder_.file("m-00002-of-00003.gguf");
  EXPECT_EQ(Gguf::open(first).error().message,
            second + ": part 2 of 3 of the model is missing: download it too");
  write_part(2, 2, 3, 3);
  write_part(3, 2, 3, 3);
  EXPECT_EQ(Gguf::open(first).error().message,
            second + ": is not part 2 of 3 by its metadata: files of several models are mixed");
  write_part(2, 1, 3, 3);
  write_part(1, 0, 3, 4);
  EXPECT_EQ(Gguf::open(first).error().message,
            first + ": the parts hold 3 tensors, expected 4 by split.tensors.count");
  std::filesystem::rename(first, folder_.file("m.gguf"));
  EXPECT_EQ(Gguf::open(folder_.file("m.gguf")).error().message,
            folder_.file("m.gguf") +
                ": is a part of a model split into 3 files; its name must end with "
                "-00001-of-00003.gguf for the others to be found");
}

}  // namespace
}  // namespace millrace
