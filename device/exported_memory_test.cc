#include "device/exported_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "device/testing/fake_device.h"

namespace hccl_like {
namespace {

constexpr size_t kBytes = 64 << 10;

// Allocations by where they begin, in addresses that mean nothing to the host.
struct Piece {
  uint64_t number;
  void* address = nullptr;
};
std::map<uint64_t, Piece> pieces;
int exports = 0;

uint64_t place_of(hcd_ref ref) { return reinterpret_cast<uintptr_t>(ref.base) + ref.offset; }
hcd_ref at(uint64_t place) { return {reinterpret_cast<void*>(place), 0}; }

std::map<uint64_t, Piece>::iterator holder(hcd_ref ref, size_t bytes) {
  const auto behind = pieces.upper_bound(place_of(ref));
  if (behind == pieces.begin()) return pieces.end();
  const auto found = std::prev(behind);
  return place_of(ref) + bytes <= found->first + kBytes ? found : pieces.end();
}

int export_fd(int, hcd_ref ref, size_t bytes, int* fd, uint64_t* offset) {
  const auto found = holder(ref, bytes);
  if (found == pieces.end()) return fake_device::fail(HCD_INVALID, "no such memory");
  ++exports;
  *fd = ::memfd_create("exported", MFD_CLOEXEC);
  *offset = 4096 + place_of(ref) - found->first;
  return HCD_OK;
}

int identify(int, hcd_ref ref, size_t bytes, hcd_allocation* out) {
  const auto found = holder(ref, bytes);
  if (found == pieces.end()) return fake_device::fail(HCD_INVALID, "no such memory");
  out->identity[0] = found->second.number;
  out->begin = at(found->first);
  out->bytes = kBytes;
  out->offset = place_of(ref) - found->first;
  out->address = found->second.address;
  out->hmem = 3;
  return HCD_OK;
}

const hcd_dmabuf kFiles{
    {sizeof(hcd_dmabuf), HCD_EXTENSION_DMABUF, nullptr}, export_fd, identify, nullptr};

size_t open_files() {
  size_t count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) != -1;
  return count;
}

class ExportedMemoryTest : public testing::Test {
 protected:
  ExportedMemoryTest() {
    pieces = {{0x1000000, {1}}, {0x2000000, {2}}};
    exports = 0;
  }
  static hcd_api api() {
    hcd_api api = fake_device::make_api();
    api.extensions = &kFiles.head;
    return api;
  }
  ExportedMemories::Range range(uint64_t place, size_t bytes) {
    return memories.range(device, 0, at(place), bytes).value();
  }

  const hcd_api api_ = api();
  const Device device{api_};
  ExportedMemories memories;
};

TEST_F(ExportedMemoryTest, AnAllocationIsExportedOnceWhateverPartIsAskedFor) {
  const auto first = range(0x1000000 + 100, 50);
  const auto again = range(0x1000000 + 7, 1000);
  EXPECT_EQ(exports, 1);
  EXPECT_EQ(first.memory, again.memory);
  EXPECT_EQ(first.data - first.memory->data(), 100);
  EXPECT_EQ(again.data - again.memory->data(), 7);
  EXPECT_EQ(first.memory->size(), kBytes);
  EXPECT_EQ(first.memory->file_offset(), 4096u);
  EXPECT_EQ(first.memory->hmem(), 3u);
  EXPECT_NE(range(0x2000000, kBytes).memory, first.memory);
  EXPECT_EQ(exports, 2);
}

TEST_F(ExportedMemoryTest, IsFoundByTheAddressesThatStandForIt) {
  EXPECT_EQ(ExportedMemory::find(this, 1), nullptr);
  const auto one = range(0x1000000, kBytes), other = range(0x2000000, kBytes);
  for (const auto& memory : {one.memory, other.memory}) {
    EXPECT_EQ(ExportedMemory::find(memory->data(), 1), memory);
    EXPECT_EQ(ExportedMemory::find(memory->data() + kBytes - 5, 5), memory);
    EXPECT_EQ(ExportedMemory::find(memory->data() + kBytes - 5, 6), nullptr);
  }
  EXPECT_EQ(ExportedMemory::find(this, 1), nullptr);
}

TEST_F(ExportedMemoryTest, ADevicesOwnAddressesStandForItsMemory) {
  alignas(64) static std::byte there[kBytes];
  pieces[0x1000000].address = there;
  EXPECT_EQ(range(0x1000000 + 9, 1).data, there + 9);
  EXPECT_EQ(ExportedMemory::find(there + kBytes - 1, 1)->identity()[0], 1u);
}

TEST_F(ExportedMemoryTest, WhatIsFreedIsLetGoOfAtTheNextExport) {
  const size_t before = open_files();
  const std::byte* const gone = range(0x1000000, kBytes).memory->data();
  EXPECT_EQ(open_files(), before + 1);
  pieces.erase(0x1000000);
  range(0x2000000, kBytes);
  EXPECT_EQ(memories.size(), 1u);
  EXPECT_EQ(open_files(), before + 1);
  const auto there = ExportedMemory::find(gone, 1);  // the same addresses may stand for what came
  EXPECT_TRUE(there == nullptr || there->identity()[0] == 2);
  memories.clear();
  EXPECT_EQ(memories.size(), 0u);
}

TEST_F(ExportedMemoryTest, WhatIsFreedIsLetGoOfAlsoIfNothingNewIsExported) {
  range(0x1000000, 1);
  range(0x2000000, 1);
  pieces.erase(0x1000000);
  for (int i = 0; i < 64; ++i) range(0x2000000, 1);
  EXPECT_EQ(memories.size(), 1u);
}

TEST_F(ExportedMemoryTest, OtherMemoryAtTheSamePlaceIsNotTakenForWhatWasThere) {
  const auto first = range(0x1000000, kBytes);
  pieces[0x1000000].number = 3;
  const auto second = range(0x1000000, kBytes);
  EXPECT_NE(first.memory, second.memory);
  EXPECT_EQ(second.memory->identity()[0], 3u);
  EXPECT_EQ(memories.size(), 1u);
  EXPECT_EQ(ExportedMemory::find(first.data, 1), first.memory) << "it is still held";
}

TEST_F(ExportedMemoryTest, SaysWhatThePluginSays) {
  EXPECT_EQ(memories.range(device, 0, at(5), 1).error().message,
            "fake:0 could not tell what allocation memory lies in (identify of its plugin): "
            "no such memory");
  const Device plain(fake_device::api());
  EXPECT_EQ(memories.range(plain, 0, at(5), 1).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace hccl_like
