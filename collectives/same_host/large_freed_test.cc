// Memory that is freed between calls, and calls that end while another rank writes.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/same_host/large_call.h"
#include "collectives/testing/large_calls.h"
#include "collectives/testing/on_ranks.h"
#include "core/base/fd.h"
#include "device/host/host_ipc.h"
#include "transport/message/kept_memory.h"

namespace hccl_like {
namespace {

using namespace testing;
using std::chrono::milliseconds;

// Numbers in a file that somebody else made and keeps open, as torch's shared tensors are.
class FileNumbers {
 public:
  FileNumbers(const char* name, size_t count, int32_t value)
      : file_(::memfd_create(name, MFD_CLOEXEC)), count_(count) {
    EXPECT_EQ(::ftruncate(file_.get(), static_cast<off_t>(count * kInt)), 0);
    mapping_ = Mapping::map(file_.get(), count * kInt, PROT_READ | PROT_WRITE, MAP_SHARED);
    std::fill_n(data(), count, value);
  }
  int32_t* data() const { return reinterpret_cast<int32_t*>(mapping_.data()); }
  Region region() const { return {mapping_.data(), count_ * kInt}; }
  ExportedRange range() const { return {.handle = handle_of(*SharedFileToken::of(file_.get()))}; }

 private:
  Fd file_;
  Mapping mapping_;
  size_t count_;
};

Call all_reduce(Region region, const ExportedRange& range) {
  Call call{.collective = Collective::kAllReduce,
            .type = DataType::kInt32,
            .input = Layout::even(region, 1, kInt),
            .output = Layout::even(region, 1, kInt)};
  call.device = &testing::host();
  call.shared_input = call.shared_output = range;
  return call;
}

// How often this process has a file of that name mapped.
size_t mapped(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  size_t found = 0;
  for (std::string line; std::getline(maps, line);) found += line.find(name) != std::string::npos;
  return found;
}

TEST(DirectFreed, MemoryThatItsOwnerHasFreedIsNotKeptByPeers) {
  constexpr size_t kCount = 20'000;
  std::atomic<size_t> most{0};
  on_ranks(2, Config{}, [&](Rank me) {
    for (int i = 0; i < 200; ++i) {
      {
        const FileNumbers data("hccl-freed", kCount, me.rank + i);
        me.communicator.run(all_reduce(data.region(), data.range()));
        for (size_t k = 0; k < kCount; k += 97) ASSERT_EQ(data.data()[k], 2 * i + 1);
      }
      if (const size_t now = mapped("hccl-freed"); now > most) most = now;
    }
    // Later calls on other memory drop the remaining mappings.
    for (int i = 0; i < 200; ++i) me.communicator.run({.collective = Collective::kBarrier});
    EXPECT_EQ(me.runtime.engine().peer_memory().stats().mappings, 0u);
  });
  // Of each rank: its own, and what the other has mapped of it for this call and, at most, for the
  // one before.
  EXPECT_LE(most, 6u);
  EXPECT_EQ(mapped("hccl-freed"), 0u);
}

// A rank maps known memory again after it closed the mapping. The other ranks do not ask a second
// time.
TEST(DirectFreed, AMappingThatWasClosedIsMadeAgain) {
  constexpr size_t kCount = 20'000;
  on_ranks(3, Config{}, [&](Rank me) {
    Numbers data(kCount, 0);
    const Region region = data.region();
    std::vector<KnownMemory> known(1);
    PeerMemory small(/*most_bytes=*/1);  // keeps nothing that is not held
    Board& board = *me.communicator.board();
    me.communicator.run({.collective = Collective::kBarrier});
    ThreadPool thread_pool;
    const ExportedRange range = exported(region);
    const Layout layout = Layout::even(region, 1, kInt);
    for (uint32_t number = 1; number < 7; ++number) {
      for (size_t i = 0; i < kCount; ++i) data[i] = value(me.rank, 0, i);
      const SteppedCall stepped{
          .call = {.collective = Collective::kAllReduce,
                   .type = DataType::kInt32,
                   .input = layout,
                   .output = layout,
                   .device = &testing::host(),
                   .shared_input = range,
                   .shared_output = range},
          // One rank's mappings stay.
          .resources = {.peer_memory = me.rank == 0 ? &me.runtime.engine().peer_memory() : &small,
                        .known_memory = &known.front(),
                        .thread_pool = &thread_pool}};
      const BoardCall call = stepped.on(board, number);
      LargeCall run;
      while (!board.writable(number)) std::this_thread::yield();
      ASSERT_TRUE(run.begin(call));
      run.show();
      for (int rank = 0; rank < me.size; ++rank)
        while (board.call_slot(rank, number) == nullptr) std::this_thread::yield();
      run.meet();
      while (!run.finished() && !run.failure())
        if (!run.advance()) std::this_thread::yield();
      ASSERT_FALSE(run.failure()) << *run.failure();
      board.done(number);
      run.end();
      for (size_t i = 0; i < kCount; i += 97)
        ASSERT_EQ(data[i], 3 * value(0, 0, i) + 300'000) << i << ", " << number;
    }
  });
}

// Two ranks, of which the first gives up and the second writes into its memory: as far as the
// writer's word goes, which the test sets.
class GivesUp {
 public:
  GivesUp(Rank me, const BoardCall& call) : me_(me), call_(call) {
    while (!call.board->writable(call.number)) std::this_thread::yield();
    EXPECT_TRUE(run_.begin(call));
    run_.show();
  }
  LargeCall& run() { return run_; }
  // This rank's own staging buffer, by what it shows.
  StagingBuffer& staging_buffer() const {
    Offer offer;
    std::memcpy(&offer, call_.board->payload(me_.rank, call_.number, sizeof offer), sizeof offer);
    return *reinterpret_cast<StagingBuffer*>(call_.board->staging_buffers().data(offer.staging));
  }
  void begin_to_write() {
    Offer offer;
    std::memcpy(&offer, call_.board->payload(me_.rank, call_.number, sizeof offer), sizeof offer);
    staging_buffer().writing.store(offer.base + 1);
  }

 private:
  Rank me_;
  const BoardCall& call_;
  LargeCall run_;
};

class DirectWriters : public ::testing::Test {
 protected:
  static std::shared_ptr<void> hold(void* numbers) {
    return *static_cast<std::shared_ptr<Numbers>*>(numbers);
  }
  // `first` and `second` are what the two ranks do after both have shown the call. Rank 0 owns
  // `memory`, which it may drop.
  using First = std::function<void(GivesUp&, const BoardCall&, std::shared_ptr<Numbers>&)>;
  using Second = std::function<void(GivesUp&, const BoardCall&)>;
  static void on_both(const First& first, const Second& second) {
    on_ranks(2, Config{}, [&](Rank me) {
      me.communicator.run({.collective = Collective::kBarrier});
      auto memory = std::make_shared<Numbers>(20'000, 1);
      const Layout layout = Layout::even(memory->region(), 1, kInt);
      const ExportedRange range = exported(memory->region());
      KnownMemory known;
      ThreadPool thread_pool;
      const SteppedCall stepped{.call = {.collective = Collective::kAllReduce,
                                         .type = DataType::kInt32,
                                         .input = layout,
                                         .output = layout,
                                         .device = &testing::host(),
                                         .shared_input = range,
                                         .shared_output = range,
                                         .output_owner = {&memory, &hold}},
                                .resources = {.peer_memory = &me.runtime.engine().peer_memory(),
                                              .known_memory = &known,
                                              .thread_pool = &thread_pool}};
      const BoardCall call = stepped.on(*me.communicator.board(), 1);
      GivesUp both(me, call);
      for (int rank = 0; rank < 2; ++rank)
        while (call.board->call_slot(rank, 1) == nullptr) std::this_thread::yield();
      if (me.rank == 0)
        first(both, call, memory);
      else
        second(both, call);
    });
  }

  std::promise<void> writing_, given_up_, written_;
};

// The writer knows the memory, so it goes on as soon as it sees all lines; this rank has not looked
// at its line yet.
TEST_F(DirectWriters, AreWaitedForAlsoByARankThatHasNotMetThem) {
  std::atomic<bool> written{false};
  on_both(
      [&](GivesUp& both, const BoardCall& call, std::shared_ptr<Numbers>&) {
        writing_.get_future().wait();
        call.board->withdraw(call.number);
        given_up_.set_value();
        both.run().end();
        EXPECT_TRUE(written) << "the memory was handed back while another rank wrote to it";
      },
      [&](GivesUp& both, const BoardCall& call) {
        both.begin_to_write();
        writing_.set_value();
        given_up_.get_future().wait();
        // Long enough for a rank that does not wait.
        std::this_thread::sleep_for(milliseconds(50));
        written = true;
        both.staging_buffer().writing.store(0);
        call.board->withdraw(call.number);
        both.run().end();
      });
}

TEST_F(DirectWriters, KeepTheMemoryTheyWereStoppedIn) {
  for (const bool met : {true, false}) {
    for (auto* const event : {&writing_, &given_up_, &written_}) *event = std::promise<void>();
    on_both(
        [&](GivesUp& both, const BoardCall& call, std::shared_ptr<Numbers>& memory) {
          if (met) both.run().meet();
          writing_.get_future().wait();
          call.board->withdraw(call.number);
          const size_t kept = KeptMemory::of_process().size();
          both.run().end();  // a second later
          EXPECT_EQ(KeptMemory::of_process().size(), kept + 1);
          const std::weak_ptr<Numbers> late = memory;
          memory.reset();
          KeptMemory::of_process().sweep();
          EXPECT_FALSE(late.expired()) << "it would be handed out again";
          given_up_.set_value();
          written_.get_future().wait();
          KeptMemory::of_process().sweep();
          EXPECT_TRUE(late.expired());
          EXPECT_EQ(KeptMemory::of_process().size(), kept);
        },
        [&](GivesUp& both, const BoardCall& call) {
          both.begin_to_write();
          writing_.set_value();
          given_up_.get_future().wait();
          both.staging_buffer().writing.store(0);
          written_.set_value();
          call.board->withdraw(call.number);
          both.run().end();
        });
  }
}

}  // namespace
}  // namespace hccl_like
