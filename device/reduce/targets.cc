// Highway's choice of the instruction set. Its shared library would make it as well, but when that
// is loaded it measures the resolution of a timer first, for 8 ms of each process.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/reduce/targets.cc"
#include <hwy/foreach_target.h>
// Highway's order: foreach_target.h first.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hccl_like {
namespace HWY_NAMESPACE {

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace hccl_like
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "device/reduce/reduce.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#elif HWY_ARCH_ARM_A64
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

namespace hwy {

// Declared by hwy/targets.h. Has a bit for each instruction set that this processor and its system
// can run.
int64_t SupportedTargets() {
  int64_t found = HWY_STATIC_TARGET | HWY_EMU128 | HWY_SCALAR;
#if HWY_ARCH_X86
  const auto add = [&](int64_t target, bool supported) {
    if (supported) found |= target;
    return supported;
  };
  __builtin_cpu_init();
  unsigned eax, ebx, edx, basic = 0, extended = 0;  // clang 14 knows no names of F16C and LZCNT
  __get_cpuid(1, &eax, &ebx, &basic, &edx);
  __get_cpuid(0x80000001, &eax, &ebx, &extended, &edx);
  const bool sse4 =
      add(HWY_SSE4, __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
                        __builtin_cpu_supports("aes"));
  const bool avx2 =
      add(HWY_AVX2, sse4 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                        __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma") &&
                        (basic & bit_F16C) != 0 && (extended & bit_LZCNT) != 0);
  const bool avx3 =
      add(HWY_AVX3, avx2 && __builtin_cpu_supports("avx512f") &&
                        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"));
  add(HWY_AVX3_DL,
      avx3 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi") &&
          __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512bitalg") &&
          __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("vpclmulqdq") &&
          __builtin_cpu_supports("gfni"));
#elif HWY_ARCH_ARM_A64
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  if (first & HWCAP_AES) found |= HWY_NEON;
  if (first & HWCAP_SVE) {
    const int bytes = prctl(PR_SVE_GET_VL) & PR_SVE_VL_LEN_MASK;
    const bool both = second & HWCAP2_SVE2;
    found |= HWY_SVE | (bytes == 32 ? HWY_SVE_256 : 0);
    if (both) found |= HWY_SVE2 | (bytes == 16 ? HWY_SVE2_128 : 0);
  }
#endif
  return found;
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy

namespace hccl_like {

HWY_EXPORT(target_name);
const char* reduction_target() noexcept { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace hccl_like
#endif
