#pragma once
// Contract tests: device-local operations and a plugin's memory. Part of plugin_contract.h.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <set>
#include <utility>

#include "device/reduce/reduce.h"
#include "device/testing/plugin_contract_fixture.h"

namespace hccl_like {

TEST_P(PluginContract, CopiesWithinItself) {
  if (!device_.can_copy_within()) GTEST_SKIP() << "no copy_d2d";
  for (const hcd_stream stream : streams_) {
    auto expected = pattern(kBytes, 21);
    write(0, expected, stream);
    throw_if(device_.copy_within(kIndex, at(40'003), at(17), 20'001, stream));
    throw_if(device_.copy_within(kIndex, at(5), at(kBytes), 0, stream));
    std::copy_n(expected.begin() + 17, 20'001, expected.begin() + 40'003);
    EXPECT_EQ(read(0, kBytes, stream), expected);
  }
}

// Small integers: every result is exact in every type. Bool has only 0 and 1.
inline void fill_operand(std::byte* at, DataType type, size_t elements, unsigned seed) {
  std::memset(at, 0, elements * size_of(type));
  for (size_t i = 0; i < elements; ++i) {
    const auto value = static_cast<unsigned>((i * 7 + seed) % (type == DataType::kBool ? 2 : 5));
    std::byte* const element = at + i * size_of(type);
    const auto store = [&](auto typed) { std::memcpy(element, &typed, sizeof typed); };
    constexpr uint16_t kHalves[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400};
    switch (type) {
      case DataType::kFloat32:
      case DataType::kComplex64:
        store(static_cast<float>(value));
        break;
      case DataType::kFloat64:
      case DataType::kComplex128:
        store(static_cast<double>(value));
        break;
      case DataType::kFloat16:
        store(kHalves[value]);
        break;
      case DataType::kBFloat16: {
        const auto wide = static_cast<float>(value);
        std::memcpy(element, reinterpret_cast<const char*>(&wide) + 2, 2);
        break;
      }
      default:
        store(static_cast<uint8_t>(
            value));  // little-endian integers; floats of 8 bits take any pattern
    }
  }
}

TEST_P(PluginContract, ReducesAsTheHostDoes) {
  if (!device_.can_reduce()) GTEST_SKIP() << "no reduce";
  constexpr size_t kElements = 1001;
  const hcd_stream stream = streams_.back();
  int done = 0;
  for (int t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    const size_t bytes = kElements * size_of(type);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax,
                              ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
      const Combine combine = reduction(type, op).combine;
      if (combine == nullptr) continue;
      std::vector<unsigned char> inout(bytes), in(bytes), expected(bytes);
      fill_operand(reinterpret_cast<std::byte*>(inout.data()), type, kElements, 1);
      fill_operand(reinterpret_cast<std::byte*>(in.data()), type, kElements, 3);
      combine(reinterpret_cast<std::byte*>(expected.data()),
              reinterpret_cast<const std::byte*>(inout.data()),
              reinterpret_cast<const std::byte*>(in.data()), kElements);
      write(48, inout, stream);
      write(40'000, in, stream);
      const auto error = device_.reduce(kIndex, at(48), at(40'000), kElements, type, op, stream);
      if (error && error->code == ErrorCode::kUnsupported) continue;
      throw_if(error);
      EXPECT_EQ(read(48, bytes, stream), expected) << name(type) << " " << name(op);
      EXPECT_EQ(read(40'000, bytes, stream), in);
      ++done;
    }
  }
  EXPECT_GT(done, 0) << "reduce is there, and can do nothing";
}

TEST_P(PluginContract, ReducesManyAsTheHostDoes) {
  if (!device_.can_reduce_many()) GTEST_SKIP() << "no reduce_many";
  constexpr size_t kElements = 501, kSources = 3;
  constexpr size_t kAt[kSources] = {48, 20'048, 40'000};
  const hcd_stream stream = streams_.back();
  int done = 0;
  for (int t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    const size_t bytes = kElements * size_of(type);
    for (const ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kBitAnd,
          ReduceOp::kBitOr, ReduceOp::kBitXor, ReduceOp::kAvg, ReduceOp::kPreMulSum}) {
      const Reduction& host = reduction(type, op);
      if (!host.valid() || (op == ReduceOp::kAvg && is_integer(type))) continue;
      const Scaling scales = scaling(type, op, kSources, 1.5);
      std::vector<std::vector<unsigned char>> in(kSources);
      std::vector<const std::byte*> from;
      std::vector<hcd_ref> refs;
      for (size_t i = 0; i < kSources; ++i) {
        in[i].resize(bytes);
        fill_operand(reinterpret_cast<std::byte*>(in[i].data()), type, kElements, 1 + 2 * i);
        from.push_back(reinterpret_cast<const std::byte*>(in[i].data()));
        write(kAt[i], in[i], stream);
        refs.push_back(at(kAt[i]));
      }
      std::vector<unsigned char> expected(bytes);
      host.combine_all(reinterpret_cast<std::byte*>(expected.data()), nullptr, from, kElements,
                       scales);
      // Into memory of its own, then into that of the second source.
      for (const size_t to : {size_t{60'000}, kAt[1]}) {
        const auto error =
            device_.reduce_many(kIndex, at(to), refs, kElements, type, op, scales, stream);
        if (error && error->code == ErrorCode::kUnsupported) continue;
        throw_if(error);
        EXPECT_EQ(read(to, bytes, stream), expected) << name(type) << " " << name(op);
        EXPECT_EQ(read(kAt[0], bytes, stream), in[0]);
        ++done;
      }
    }
  }
  EXPECT_GT(done, 0) << "reduce_many is there, and can do nothing";
}

TEST_P(PluginContract, AllocatesMemoryOfTheDevice) {
  if (!device_.can_allocate()) GTEST_SKIP() << "no mem_alloc";
  const hcd_stream stream = streams_.front();
  const MappedRange one = device_.allocate(kIndex, kBytes).value();
  MappedRange other = device_.allocate(kIndex, 1).value();
  const auto data = pattern(kBytes, 22);
  throw_if(device_.copy_from_host(kIndex, {one.data(), 0}, data.data(), kBytes, stream));
  throw_if(device_.copy_from_host(kIndex, {other.data(), 0}, data.data() + 9, 1, stream));
  throw_if(device_.synchronize(kIndex, stream));
  other.reset();
  std::vector<unsigned char> seen(kBytes);
  throw_if(device_.copy_to_host(kIndex, seen.data(), {one.data(), 0}, kBytes, stream));
  throw_if(device_.synchronize(kIndex, stream));
  EXPECT_EQ(seen, data);
}

TEST_P(PluginContract, CopiesToAndFromHostMemoryOfItsOwn) {
  if (!device_.can_allocate_host()) GTEST_SKIP() << "no host_alloc";
  for (const hcd_stream stream : streams_) {
    const MappedRange host = device_.allocate_host(kIndex, kBytes).value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(host.data()) % 64, 0u);
    const auto data = pattern(kBytes, 23);
    std::memcpy(host.data(), data.data(), kBytes);
    throw_if(device_.copy_from_host(kIndex, at(0), host.data(), kBytes, stream));
    EXPECT_EQ(read(0, kBytes, stream), data);
    write(0, pattern(kBytes, 24), stream);
    throw_if(device_.copy_to_host(kIndex, host.data(), at(0), kBytes, stream));
    throw_if(device_.synchronize(kIndex, stream));
    EXPECT_EQ(std::memcmp(host.data(), pattern(kBytes, 24).data(), kBytes), 0);
  }
}

TEST_P(PluginContract, CopiesToAndFromHostMemoryThatIsRegistered) {
  if (!device_.can_register_host()) GTEST_SKIP() << "no host_register";
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t bytes = 3 * page;
  void* const shared =
      ::mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  for (const hcd_stream stream : streams_) {
    const MappedRange host = device_.register_host(kIndex, shared, bytes).value();
    const auto data = pattern(bytes, 25);
    std::memcpy(shared, data.data(), bytes);
    throw_if(device_.copy_from_host(kIndex, at(3), shared, bytes, stream));
    EXPECT_EQ(read(3, bytes, stream), data);
    throw_if(device_.copy_to_host(kIndex, host.data(), at(4), bytes - 1, stream));
    throw_if(device_.synchronize(kIndex, stream));
    EXPECT_EQ(std::memcmp(shared, data.data() + 1, bytes - 1), 0);
  }
  const hcd_api& api = *GetParam().api;
  EXPECT_NE(api.host_unregister(kIndex, shared), HCD_OK) << "it was unregistered by its guard";
  ::munmap(shared, 4 * page);
}

// Only the importer defines the use of a memory file; if it can be mapped, it shows the memory.
TEST_P(PluginContract, ExportsMemoryAsAFile) {
  if (!device_.can_export_files()) GTEST_SKIP() << "no extension for dmabuf";
  const auto expected = pattern(kBytes, 26);
  write(0, expected, streams_.front());
  Result<ExportedFile> exported = device_.export_file(kIndex, at(123), 1000);
  if (!exported.ok() && exported.error().code == ErrorCode::kUnsupported)
    GTEST_SKIP() << exported.error();
  ASSERT_TRUE(exported.ok()) << exported.error();
  const int fd = exported.value().file.get();
  ASSERT_NE(::fcntl(fd, F_GETFD), -1);
  EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << "other programs would inherit it";
  const uint64_t offset = exported.value().offset;
  const size_t bytes = offset + 1000;
  void* const seen = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (seen == MAP_FAILED) GTEST_SKIP() << "the host cannot map it";
  EXPECT_EQ(std::memcmp(static_cast<char*>(seen) + offset, expected.data() + 123, 1000), 0);
  ::munmap(seen, bytes);
}

TEST_P(PluginContract, SaysWhichAllocationMemoryLiesIn) {
  if (!device_.can_identify()) GTEST_SKIP() << "no extension that identifies";
  const DeviceAllocation found = device_.identify(kIndex, at(123), 1000).value();
  EXPECT_GE(found.bytes, found.offset + 1000);
  const DeviceAllocation whole = device_.identify(kIndex, found.begin, found.bytes).value();
  EXPECT_EQ(whole.offset, 0u);
  EXPECT_EQ(whole.bytes, found.bytes);
  for (const auto& [offset, bytes] : {std::pair<size_t, size_t>{123, 1000}, {7, 1}, {0, 64}}) {
    const DeviceAllocation other = device_.identify(kIndex, at(offset), bytes).value();
    EXPECT_EQ(other.identity, found.identity);
    EXPECT_EQ(other.offset - offset, found.offset - 123);
  }
  EXPECT_FALSE(device_.identify(kIndex, found.begin, found.bytes + 1).ok())
      << "the range leaves its allocation";
  if (!device_.can_allocate()) return;
  constexpr size_t kOwn = 4 << 20;
  std::set<std::array<uint64_t, 2>> seen{found.identity};
  for (int i = 0; i < 3; ++i) {  // one after the other, perhaps at one address
    const MappedRange memory = device_.allocate(kIndex, kOwn).value();
    const DeviceAllocation mine = device_.identify(kIndex, {memory.data(), 0}, kOwn).value();
    // Suballocations reappear when freed: only a range freed as a whole gets a new identity.
    if (mine.offset != 0 || mine.bytes >= 2 * kOwn) continue;
    EXPECT_TRUE(seen.insert(mine.identity).second) << "the identity of one that is gone";
  }
}

}  // namespace hccl_like
