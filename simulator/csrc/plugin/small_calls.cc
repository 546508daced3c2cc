// All-reductions of little data, one kernel of each rank.
#include <cstring>
#include <stdexcept>
#include <vector>

#include "memory/strict.h"
#include "plugin/plugin_entry.h"
#include "runtime/runtime.h"
#include "runtime/traffic.h"

namespace torch_sim {
namespace {

// A rank's area begins with its number of calls. Each rank tells the others that its payload of a
// call is in its area by a flag in theirs. Flags and payloads are there twice, for calls of odd and
// of even numbers: a rank makes the call after the next one only when all others have begun the
// next, so have read all payloads of this one.
struct Flag {
  uint64_t fingerprint, number;
};

struct SmallCall {
  int device;
  hcd_small_group group;
  std::vector<char*> areas;  // by rank; kernel's addresses
  const void* in;
  size_t bytes;

  uint64_t& calls() const { return *reinterpret_cast<uint64_t*>(areas[group.rank]); }
  Flag& flag(uint32_t of, uint32_t from, uint64_t number) const {
    return reinterpret_cast<Flag*>(areas[of] + 1024)[number % 2 * group.ranks + from];
  }
  char* payload(uint32_t of, uint64_t number) const {
    return areas[of] + HCD_SMALL_HEAD(group.ranks) + number % 2 * group.payload;
  }
  size_t area_bytes() const { return HCD_SMALL_AREA(group.ranks, group.payload); }
  static void store(volatile uint64_t* word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
  }

  // Gives this rank's payload to the others. Returns the number of the call.
  uint64_t give() const {
    const uint64_t number = ++calls();
    std::memcpy(payload(group.rank, number), in, bytes);
    for (uint32_t peer = 0; peer < group.ranks; ++peer) {
      Flag& there = flag(peer, group.rank, number);
      there.fingerprint = group.fingerprint;
      __atomic_store_n(&there.number, number, __ATOMIC_RELEASE);
    }
    return number;
  }

  // Waits for the payloads of all ranks. False if the host has stopped it.
  bool await(uint64_t number) const {
    for (uint32_t peer = 0; peer < group.ranks; ++peer) {
      const Flag& here = flag(group.rank, peer, number);
      const auto given = [&] {
        return __atomic_load_n(&here.number, __ATOMIC_ACQUIRE) >= number &&
               here.fingerprint == group.fingerprint;
      };
      wait_until([&] { return given() || __atomic_load_n(group.stop, __ATOMIC_ACQUIRE) != 0; });
      if (!given()) return false;
    }
    return true;
  }
};

int all_reduce_small(int device, const hcd_small_group* group, hcd_ref out, hcd_ref in,
                     uint64_t count, hcd_type type, hcd_op op, double scale, double result_scale,
                     hcd_stream stream) {
  return guarded([&] {
    const size_t bytes = count * bytes_of(type);
    if (group->ranks > HCD_SMALL_RANKS || group->rank >= group->ranks || bytes > group->payload)
      throw std::invalid_argument("sim: this is no group, or no payload, of small all-reductions");
    SmallCall call{device, *group, {}, kernel_address(device, in, bytes), bytes};
    for (uint32_t rank = 0; rank < group->ranks; ++rank)
      call.areas.push_back(
          static_cast<char*>(kernel_address(device, group->areas[rank], call.area_bytes())));
    void* const to = kernel_address(device, out, bytes);
    const auto reduce = [=](uint64_t number) {
      Reduction of{to, {}, count, scale, result_scale};
      for (uint32_t rank = 0; rank < call.group.ranks; ++rank)
        of.in.push_back(call.payload(rank, number));
      return of;
    };
    (void)reduction(reduce(0), type, op);  // throws if there is none
    stream_or_throw(device, stream).enqueue([=] {
      SmallCall::store(call.group.state, 1);
      std::vector<Window> windows;
      windows.emplace_back(call.in, bytes);
      windows.emplace_back(to, bytes);
      for (const char* area : call.areas) windows.emplace_back(area, call.area_bytes());
      const uint64_t number = call.give();
      if (!call.await(number)) {
        std::memset(to, type == HCD_BOOL ? 1 : 0xff, bytes);
        return SmallCall::store(call.group.state, 0);
      }
      {
        const Reduction of = reduce(number);
        WorkTime time(device);
        size_t peers = 0;
        for (const void* source : of.in) peers += time.if_peers(source, bytes);
        time.kernel(bytes, peers);
        reduction(of, type, op)();
      }
      SmallCall::store(call.group.completed, number);
      SmallCall::store(call.group.state, 0);
    });
    return HCD_OK;
  });
}

}  // namespace

void add_small_calls(hcd_api& api) { api.all_reduce_small = all_reduce_small; }

}  // namespace torch_sim
