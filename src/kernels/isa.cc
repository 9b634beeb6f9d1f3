#include "kernels/isa.h"

#include "base/check.h"

namespace millrace {

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Vnni:
      return "avx512vnni";
  }
  MR_CHECK(false, "bad instruction set");
}

std::vector<Isa> available_isas(const CpuFeatures& features) {
  std::vector<Isa> isas{Isa::kPortable};
  if (features.avx2) isas.push_back(Isa::kAvx2);
  if (features.avx512) isas.push_back(Isa::kAvx512);
  if (features.avx512_vnni) isas.push_back(Isa::kAvx512Vnni);
  return isas;
}

Result<Isa> resolve_isa(const std::optional<std::string>& forced, const CpuFeatures& features) {
  const std::vector<Isa> available = available_isas(features);
  if (!forced) return available.back();
  std::string possible;
  for (const Isa isa : available) {
    if (name_of(isa) == *forced) return isa;
    possible += possible.empty() ? "" : ", ";
    possible += name_of(isa);
  }
  bool known = false;
  for (int i = 0; i < kNumIsas; ++i) known = known || name_of(static_cast<Isa>(i)) == *forced;
  if (known) {
    return fail("MILLRACE_ISA={}: this CPU does not have it; possible here: {}", *forced, possible);
  }
  return fail("MILLRACE_ISA={}: unknown instruction set; possible here: {}", *forced, possible);
}

bool has_bf16_class(Isa isa, const CpuFeatures& features) {
  return isa == Isa::kAvx512Vnni && features.avx512_bf16;
}

}  // namespace millrace
