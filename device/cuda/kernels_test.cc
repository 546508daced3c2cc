// The kernels, compiled for the host, against a scalar reference, and what nvcc made of them.
#include "device/cuda/kernels.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <regex>
#include <set>
#include <sstream>

#include "device/cuda/entries.h"
#include "device/cuda/testing/host_kernels.h"
#include "device/reduce/reduce.h"
#include "device/testing/reduce_inputs.h"

namespace hccl_like::cuda {
namespace {

using reduce_reference::Bytes;
using reduce_reference::expect_same;
using reduce_reference::kReferences;
using reduce_reference::random_bytes;

constexpr size_t kPack = 16;

struct Type {
  DataType type;
  HostKernel kernel;
  size_t size;
  size_t alignment;
};
std::vector<Type> types() {
  std::vector<Type> all;
#define TYPE(name, T, W) \
  all.push_back(         \
      {static_cast<DataType>(all.size()), kHostKernels[all.size()], sizeof(T), alignof(T)});
  HCCL_LIKE_CUDA_KERNELS(TYPE)
#undef TYPE
  return all;
}

// Memory that ends where nobody may read or write.
class Guarded {
 public:
  static constexpr size_t kBytes = 4096;
  Guarded() {
    pages_ = static_cast<std::byte*>(
        ::mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ::mprotect(pages_ + kBytes, kBytes, PROT_NONE);
  }
  ~Guarded() { ::munmap(pages_, 2 * kBytes); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  // An array whose end is `gap` bytes before that place; all other bytes are 0x5a.
  std::byte* place(const Bytes& array, size_t gap) {
    std::fill_n(pages_, kBytes, std::byte{0x5a});
    std::byte* const at = pages_ + kBytes - gap - array.size();
    std::copy(array.begin(), array.end(), at);
    return at;
  }
  bool has_nothing_beside(const std::byte* at, size_t bytes) const {
    const auto is_fill = [](std::byte b) { return b == std::byte{0x5a}; };
    return std::all_of(static_cast<const std::byte*>(pages_), at, is_fill) &&
           std::all_of(at + bytes, static_cast<const std::byte*>(pages_ + kBytes), is_fill);
  }

 private:
  std::byte* pages_;
};

Bytes input(DataType type, size_t elements, std::mt19937& random) {
  Bytes bytes = random_bytes(type, elements, 0, random);
  if (type == DataType::kBool)
    for (std::byte& b : bytes) b &= std::byte{1};
  return bytes;
}

// Every place of three arrays in a unit of 16 bytes, and every number of elements up to several
// units, with as few threads as one and more than there are elements.
TEST(CudaKernels, AreExactForEveryAlignmentAndSize) {
  std::mt19937 random(1);
  Guarded memory[3];
  for (const Type& t : types()) {
    for (size_t count = 0; count <= 3 * kPack / t.size + 2; ++count) {
      const Bytes a = input(t.type, count, random), b = input(t.type, count, random);
      Bytes expected(a.size());
      kReferences[static_cast<size_t>(t.type)].many(ReduceOp::kSum, expected.data(),
                                                    {a.data(), b.data()}, count, t.size);
      const std::set<size_t> gaps{0, t.alignment, t.size, 8, kPack - t.alignment};
      for (const size_t gap_a : gaps)
        for (const size_t gap_b : gaps)
          for (const size_t gap_out : gaps)
            for (const uint64_t threads : {1, 5, 256}) {
              const Sources in{{memory[0].place(a, gap_a), memory[1].place(b, gap_b)}};
              std::byte* const out = memory[2].place(Bytes(a.size()), gap_out);
              t.kernel.run(out, in, 2, count, HCD_SUM, 1, 1, threads);
              ASSERT_NO_FATAL_FAILURE(
                  expect_same(t.type, ReduceOp::kSum, out, expected.data(), count, "gaps"))
                  << gap_a << " " << gap_b << " " << gap_out << ", threads " << threads;
              ASSERT_TRUE(memory[2].has_nothing_beside(out, a.size()));
            }
    }
  }
}

template <class T>
void expect_packs_where_all_arrays_allow_them() {
  alignas(kPack) std::byte memory[2 * kPack];
  for (size_t x = 0; x < kPack; x += alignof(T)) {
    for (size_t y = 0; y < kPack; y += alignof(T)) {
      const Sources in{{memory + x, memory + y}};
      const bool allowed = x == y && x % sizeof(T) == 0;
      const uint64_t before = (kPack - x) % kPack / sizeof(T);
      for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{100}})
        EXPECT_EQ(elements_before_packs(reinterpret_cast<T*>(memory + x), in, 2, count),
                  allowed ? std::min(before, count) : count)
            << sizeof(T) << " bytes at " << x << " and " << y;
    }
  }
}
TEST(CudaKernels, TakePacksWhereAllArraysAllowThem){
#define EXPECT_PACKS(name, T, W) expect_packs_where_all_arrays_allow_them<T>();
    HCCL_LIKE_CUDA_KERNELS(EXPECT_PACKS)
#undef EXPECT_PACKS
}

TEST(CudaKernels, AreExactForEveryOperationAndRoundOnce) {
  constexpr std::pair<ReduceOp, hcd_op> kOps[] = {
      {ReduceOp::kSum, HCD_SUM},        {ReduceOp::kProduct, HCD_PRODUCT},
      {ReduceOp::kMin, HCD_MIN},        {ReduceOp::kMax, HCD_MAX},
      {ReduceOp::kBitAnd, HCD_BIT_AND}, {ReduceOp::kBitOr, HCD_BIT_OR},
      {ReduceOp::kBitXor, HCD_BIT_XOR}, {ReduceOp::kPreMulSum, HCD_SUM}};
  constexpr size_t kElements = 1003;
  std::mt19937 random(2);
  for (const Type& t : types()) {
    const auto& reference = kReferences[static_cast<size_t>(t.type)];
    for (const auto& [op, hcd] : kOps) {
      if (!reduction(t.type, op).valid() || (t.type == DataType::kBool && hcd > HCD_PRODUCT))
        continue;
      const bool scales = op == ReduceOp::kPreMulSum;
      const double scale = scales ? 1.0 / 3 : 1, result_scale = scales ? 1.7 : 1;
      for (const unsigned sources : {1u, 2u, 3u, 8u, Sources::kMost}) {
        std::vector<Bytes> arrays;
        std::vector<const std::byte*> from;
        for (unsigned k = 0; k < sources; ++k) arrays.push_back(input(t.type, kElements, random));
        Sources in{};
        for (unsigned k = 0; k < sources; ++k) from.push_back(arrays[k].data()), in.at[k] = from[k];
        Bytes expected(kElements * t.size), out(expected);
        if (scales)
          reference.scaled(expected.data(), from, kElements, t.size, scale, result_scale);
        else
          reference.many(op, expected.data(), from, kElements, t.size);
        for (std::byte* const to : {out.data(), arrays[sources / 2].data()}) {
          t.kernel.run(to, in, sources, kElements, hcd, scale, result_scale, 64);
          expect_same(t.type, op, to, expected.data(), kElements,
                      std::to_string(sources) + " sources");
        }
      }
    }
  }
}

// In the text that nvcc made: loads and stores of 16 bytes in every kernel, no array in local
// memory, and no load through the cache for constant data, since peers write the sources.
TEST(CudaKernels, Access16BytesAtOnce) {
  const std::regex load(R"(ld\.global\.(v4\.[bfu]32|v2\.[bfu]64))");
  const std::regex store(R"(st\.global\.(v4\.[bfu]32|v2\.[bfu]64))");
  const std::string all = kKernels;
  std::vector<std::string> names;
  for (const HostKernel& kernel : kHostKernels) names.emplace_back(kernel.name);
  for (const HostSmallKernel& kernel : kHostSmallKernels) names.emplace_back(kernel.name);
  for (const std::string& name : names) {
    const size_t begin = all.find(".entry " + name + "(");
    ASSERT_NE(begin, all.npos) << name;
    const std::string text = all.substr(begin, all.find(".entry", begin + 1) - begin);
    std::istringstream lines(text);
    int loads = 0, stores = 0;
    for (std::string line; std::getline(lines, line);) {
      loads += std::regex_search(line, load);
      stores += std::regex_search(line, store);
    }
    EXPECT_GE(loads, 2) << name;
    EXPECT_GE(stores, 1) << name;
    EXPECT_EQ(text.find(".local"), text.npos) << name;
    EXPECT_EQ(text.find("ld.global.nc"), text.npos) << name;
  }
}

}  // namespace
}  // namespace hccl_like::cuda
