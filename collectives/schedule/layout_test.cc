#include "collectives/schedule/layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <random>

namespace hccl_like {
namespace {

// Layouts only compute addresses, so tests may use memory that does not exist.
std::byte* fake(uintptr_t address) { return reinterpret_cast<std::byte*>(address); }

std::vector<Region> visited(const Layout& layout, size_t chunk, size_t begin, size_t end) {
  std::vector<Region> result;
  layout.visit(chunk, begin, end, [&](Region r) { result.push_back(r); });
  return result;
}

// The addresses of every byte of a chunk, in order.
std::vector<uintptr_t> addresses(const Layout& layout, size_t chunk, size_t begin, size_t end) {
  std::vector<uintptr_t> result;
  layout.visit(chunk, begin, end, [&](Region r) {
    EXPECT_GT(r.bytes, 0u);
    for (size_t i = 0; i < r.bytes; ++i) result.push_back(reinterpret_cast<uintptr_t>(r.data + i));
  });
  return result;
}

TEST(Layout, WithoutMemoryHasEmptyChunks) {
  const Layout none;
  EXPECT_EQ(none.bytes(0), 0u);
  EXPECT_EQ(none.bytes(7), 0u);
  EXPECT_EQ(none.total_bytes(), 0u);
  EXPECT_EQ(none.largest_chunk(), 0u);
  EXPECT_TRUE(visited(none, 0, 0, 0).empty());
  EXPECT_EQ(none.contiguous(0, 0, 0).data, nullptr);
}

TEST(Layout, EvenCoversEveryElementOnce) {
  for (const size_t chunks : {1, 2, 3, 5, 8, 64}) {
    for (const size_t elements : {0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 1000}) {
      const Layout layout = Layout::even(Region{fake(1000), elements * 4}, chunks, 4);
      size_t next = 1000, largest = 0;
      for (size_t c = 0; c < chunks; ++c) {
        EXPECT_EQ(layout.bytes(c) % 4, 0u);
        EXPECT_GE(layout.bytes(c) / 4, elements / chunks);
        EXPECT_LE(layout.bytes(c) / 4, elements / chunks + 1);
        largest = std::max(largest, layout.bytes(c));
        for (const uintptr_t at : addresses(layout, c, 0, layout.bytes(c))) EXPECT_EQ(at, next++);
      }
      EXPECT_EQ(next, 1000 + elements * 4);
      EXPECT_EQ(layout.largest_chunk(), largest);
      EXPECT_EQ(layout.total_bytes(), elements * 4);
    }
  }
}

TEST(Layout, EvenIsExactBeyondFourGiB) {
  const size_t elements = (size_t{1} << 40) + 7;
  const Layout layout = Layout::even(Region{fake(0), elements * 8}, 1021, 8);
  size_t sum = 0;
  for (size_t c = 0; c < 1021; ++c) sum += layout.bytes(c);
  EXPECT_EQ(sum, elements * 8);
  // floor((2^40 + 7) * 1020 / 1021) elements lie before the last chunk.
  EXPECT_EQ(layout.bytes(1020), (elements - 1098434730987) * 8);
}

TEST(Layout, EvenCrossesRegions) {
  const Region regions[] = {{fake(100), 12}, {fake(500), 0}, {fake(200), 4}, {fake(300), 16}};
  const Layout layout = Layout::even(regions, 2, 4);  // 8 elements, 4 a chunk
  EXPECT_EQ(layout.bytes(0), 16u);
  const auto first = visited(layout, 0, 0, 16);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].data, fake(100));
  EXPECT_EQ(first[0].bytes, 12u);
  EXPECT_EQ(first[1].data, fake(200));
  EXPECT_EQ(first[1].bytes, 4u);
  EXPECT_EQ(layout.contiguous(0, 0, 16).data, nullptr);
  EXPECT_EQ(layout.contiguous(0, 4, 12).data, fake(104));
  EXPECT_EQ(layout.contiguous(1, 0, 16).data, fake(300));
}

TEST(Layout, LocalPeersInMemoryAreContiguous) {
  const Region regions[] = {{fake(100), 8}, {fake(108), 8}};
  const Layout layout = Layout::even(regions, 1, 4);
  EXPECT_EQ(layout.contiguous(0, 4, 12).data, fake(104));
  EXPECT_EQ(layout.contiguous(0, 4, 12).bytes, 8u);
}

TEST(Layout, RecutHasTheSameBytesInOtherChunks) {
  const Layout layout = Layout::even(Region{fake(100), 40}, 1, 4).recut(3);
  EXPECT_EQ(layout.total_bytes(), 40u);
  EXPECT_EQ(layout.bytes(0), 12u);
  EXPECT_EQ(layout.contiguous(2, 0, 16).data, fake(124));
  EXPECT_EQ(Layout().recut(4).bytes(3), 0u);
}

TEST(Layout, ListTakesEachRegionAsAChunk) {
  const Layout layout = Layout::list({{fake(10), 3}, {nullptr, 0}, {fake(50), 7}});
  EXPECT_EQ(layout.bytes(0), 3u);
  EXPECT_EQ(layout.bytes(1), 0u);
  EXPECT_EQ(layout.bytes(2), 7u);
  EXPECT_EQ(layout.bytes(3), 0u);
  EXPECT_EQ(layout.largest_chunk(), 7u);
  EXPECT_EQ(layout.total_bytes(), 10u);
  EXPECT_EQ(layout.contiguous(2, 1, 7).data, fake(51));
  EXPECT_EQ(addresses(layout, 1, 0, 0).size(), 0u);
}

TEST(Layout, ListOfNothingHasNoChunks) {
  const Layout layout = Layout::list({});
  EXPECT_EQ(layout.bytes(0), 0u);
  EXPECT_EQ(layout.largest_chunk(), 0u);
}

TEST(Layout, InterleavedTakesAPartOfEveryRegion) {
  const Region regions[] = {{fake(1000), 24}, {fake(2000), 12}};
  const Layout layout = Layout::interleaved(regions, 3, 4);
  EXPECT_EQ(layout.bytes(1), 12u);
  const auto parts = visited(layout, 1, 0, 12);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].data, fake(1008));
  EXPECT_EQ(parts[0].bytes, 8u);
  EXPECT_EQ(parts[1].data, fake(2004));
  EXPECT_EQ(parts[1].bytes, 4u);
  EXPECT_EQ(layout.contiguous(2, 8, 12).data, fake(2008));
  EXPECT_EQ(layout.contiguous(2, 4, 12).data, nullptr);
}

TEST(Layout, SingleHasOneChunk) {
  const Region regions[] = {{fake(10), 8}, {fake(90), 4}};
  const Layout layout = Layout::single(regions, 5, 4);
  EXPECT_EQ(layout.bytes(0), 0u);
  EXPECT_EQ(layout.bytes(4), 0u);
  EXPECT_EQ(layout.bytes(5), 12u);
  EXPECT_EQ(layout.bytes(6), 0u);
  EXPECT_EQ(layout.largest_chunk(), 12u);
  EXPECT_EQ(addresses(layout, 5, 6, 10), (std::vector<uintptr_t>{16, 17, 90, 91}));
}

// Whatever the kind and the cut, the pieces of a chunk are the chunk.
TEST(Layout, SlicesOfAChunkAreTheChunk) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    const size_t chunks = 1 + random() % 5;
    std::vector<Region> regions(random() % 4);
    uintptr_t address = 64;
    for (Region& region : regions) {
      region = {fake(address), 2 * chunks * (random() % 5)};
      address += region.bytes + random() % 2 * 16;
    }
    for (const Layout& layout :
         {Layout::even(regions, chunks, 2), Layout::interleaved(regions, chunks, 2),
          Layout::list(regions, 2), Layout::single(regions, chunks - 1, 2)}) {
      size_t total = 0;
      for (size_t chunk = 0; chunk < std::max(chunks, regions.size()); ++chunk) {
        const size_t bytes = layout.bytes(chunk);
        EXPECT_LE(bytes, layout.largest_chunk());
        total += bytes;
        const auto whole = addresses(layout, chunk, 0, bytes);
        ASSERT_EQ(whole.size(), bytes);
        std::vector<uintptr_t> pieced;
        const size_t slices = 1 + random() % 4;
        for (size_t slice = 0; slice < slices; ++slice) {
          const Part part = slice_part(bytes, 2, slice, slices);
          const auto piece = addresses(layout, chunk, part.begin, part.end);
          const Region region = layout.contiguous(chunk, part.begin, part.end);
          if (region.data != nullptr) {
            EXPECT_EQ(region.bytes, piece.size());
            EXPECT_EQ(reinterpret_cast<uintptr_t>(region.data), piece.front());
          }
          pieced.insert(pieced.end(), piece.begin(), piece.end());
        }
        EXPECT_EQ(pieced, whole);
      }
      EXPECT_EQ(total, layout.total_bytes());
    }
  }
}

TEST(SlicePart, CutsAtElements) {
  EXPECT_EQ(slice_part(40, 8, 0, 3).begin, 0u);
  EXPECT_EQ(slice_part(40, 8, 0, 3).end, 8u);
  EXPECT_EQ(slice_part(40, 8, 1, 3).end, 24u);
  EXPECT_EQ(slice_part(40, 8, 2, 3).end, 40u);
  EXPECT_EQ(slice_part(0, 8, 1, 3).begin, slice_part(0, 8, 1, 3).end);
}

TEST(SlicePart, CutsAtGrains) {
  EXPECT_EQ(slice_part(300, 128, 0, 2).end, 128u);
  EXPECT_EQ(slice_part(300, 128, 1, 2).begin, 128u);
  EXPECT_EQ(slice_part(300, 128, 1, 2).end, 300u);
  EXPECT_EQ(slice_part(100, 128, 0, 2).end, 0u);
  EXPECT_EQ(slice_part(100, 128, 1, 2).end, 100u);
  const Layout layout = Layout::even(Region{fake(0), 300}, 1, 4).recut(2, 128);
  EXPECT_EQ(layout.bytes(0), 128u);
  EXPECT_EQ(layout.bytes(1), 172u);
}

}  // namespace
}  // namespace hccl_like
