#include "kernels/isa.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(Isa, BestIsChosenUnlessForced) {
  const CpuFeatures none;
  CpuFeatures avx512{.avx2 = true, .avx512 = true};
  EXPECT_EQ(*resolve_isa(std::nullopt, none), Isa::kPortable);
  EXPECT_EQ(*resolve_isa(std::nullopt, avx512), Isa::kAvx512);
  EXPECT_EQ(*resolve_isa("avx2", avx512), Isa::kAvx2);
  EXPECT_EQ(*resolve_isa("portable", avx512), Isa::kPortable);
}

TEST(Isa, ErrorsListWhatIsPossible) {
  const CpuFeatures avx2{.avx2 = true};
  EXPECT_EQ(resolve_isa("avx512vnni", avx2).error().message,
            "MILLRACE_ISA=avx512vnni: this CPU does not have it; possible here: portable, avx2");
  EXPECT_EQ(resolve_isa("sse9", avx2).error().message,
            "MILLRACE_ISA=sse9: unknown instruction set; possible here: portable, avx2");
}

TEST(Isa, DetectedSetsAreOrdered) {
  const CpuFeatures features = detect_cpu_features();
  EXPECT_EQ(available_isas(features).front(), Isa::kPortable);
  EXPECT_EQ(*resolve_isa(std::nullopt, features), available_isas(features).back());
}

TEST(Isa, TheClassBf16NeedsTheCpuAndTheBestKernels) {
  const CpuFeatures all{.avx2 = true, .avx512 = true, .avx512_vnni = true, .avx512_bf16 = true};
  EXPECT_TRUE(has_bf16_class(Isa::kAvx512Vnni, all));
  EXPECT_FALSE(has_bf16_class(Isa::kAvx512, all));
  EXPECT_FALSE(
      has_bf16_class(Isa::kAvx512Vnni, {.avx2 = true, .avx512 = true, .avx512_vnni = true}));
}

}  // namespace
}  // namespace millrace
