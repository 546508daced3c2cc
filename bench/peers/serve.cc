#include "bench/peers/serve.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <sstream>
#include <stdexcept>

#include "bench/cpp/shared_barrier.h"

namespace hccl_like::bench {
namespace {

using Clock = std::chrono::steady_clock;

float as_float(int value) { return static_cast<float>(value); }
uint16_t as_bfloat16(int value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(as_float(value)) >> 16);
}

constexpr size_t kPage = 4096;

// Ties this rank, not the library's own threads, to one of the cores that the launcher was given.
void pin(int rank) {
  const int cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(rank % cores), &one);
  ::sched_setaffinity(0, sizeof one, &one);
}

std::string measure(const Request& request, int rank, int ranks, SharedBarrier& barrier,
                    const MakeOperation& make, const Memory& memory) {
  PeerBuffers buffers(request, rank, ranks, memory);
  const std::function<void()> operation = make(request, buffers);
  const auto all = static_cast<uint32_t>(ranks);
  std::vector<double> times;
  size_t wrong = 0;
  for (int i = -1 - request.warmup; i < request.iterations; ++i) {
    buffers.rewrite();
    barrier.wait(all);
    const auto begin = Clock::now();
    operation();
    for (int more = 1; more < request.batch; ++more) {
      buffers.rewrite();
      operation();
    }
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    if (i >= 0) times.push_back(took.count() / request.batch);
    if (i < -request.warmup) wrong = buffers.count_wrong();
  }
  std::ranges::sort(times);
  const size_t n = times.size();
  std::ostringstream answer;
  answer << "ok " << (times[(n - 1) / 2] + times[n / 2]) / 2 << ' ' << times[0] << ' '
         << times[std::min(n - 1, n * 99 / 100)] << ' ' << wrong;
  return answer.str();
}

}  // namespace

Memory Memory::of_malloc() {
  return {.allocate = [](size_t bytes) { return std::aligned_alloc(kPage, bytes); },
          .free = [](void* memory) { std::free(memory); }};
}

PeerBuffers::PeerBuffers(const Request& request, int rank, int ranks, const Memory& memory)
    : request_(request),
      memory_(memory),
      rank_(rank),
      ranks_(ranks),
      element_(request.type == "float" ? 4 : 2) {
  const std::string& name = request.collective;
  const bool send_shares = name == "reduce_scatter" || name == "alltoall";
  const bool receive_shares = name == "all_gather" || name == "alltoall";
  const auto all = static_cast<size_t>(ranks);
  const bool shares = send_shares || receive_shares;
  count_ = request.bytes / element_ / (shares ? all : 1);
  sent_ = count_ * (send_shares ? all : 1);
  received_ = count_ * (receive_shares ? all : 1);
  send_ = allocate(sent_ * element_);
  const bool in_place = name == "all_reduce" || name == "broadcast";
  receive_ = in_place ? send_ : allocate(received_ * element_);
}

PeerBuffers::~PeerBuffers() {
  if (receive_ != send_) memory_.free(receive_);
  memory_.free(send_);
}

std::byte* PeerBuffers::allocate(size_t bytes) const {
  const size_t rounded = std::max(kPage, (bytes + kPage - 1) / kPage * kPage);
  void* const at = memory_.allocate(rounded);
  if (at == nullptr) throw std::bad_alloc();
  std::memset(at, 0, rounded);
  return static_cast<std::byte*>(at);
}

template <class T, class Encode>
void PeerBuffers::write(Encode encode) {
  if (receive_ != send_) std::fill_n(reinterpret_cast<T*>(receive_), received_, T{0});
  std::fill_n(reinterpret_cast<T*>(send_), sent_, encode(rank_ + 1));
}

void PeerBuffers::rewrite() {
  if (element_ == 4)
    write<float>(as_float);
  else
    write<uint16_t>(as_bfloat16);
}

int PeerBuffers::expected(size_t position) const {
  const std::string& name = request_.collective;
  if (name == "all_reduce" || name == "reduce_scatter") return ranks_ * (ranks_ + 1) / 2;
  if (name == "broadcast") return 1;
  if (name == "sendrecv") return (rank_ + ranks_ - 1) % ranks_ + 1;
  return static_cast<int>(position / count_) + 1;
}

template <class T, class Encode>
size_t PeerBuffers::wrong(Encode encode) const {
  const T* values = reinterpret_cast<const T*>(receive_);
  size_t found = 0;
  for (size_t i = 0; i < received_; ++i) found += values[i] != encode(expected(i));
  return found;
}

size_t PeerBuffers::count_wrong() const {
  if (request_.collective == "barrier") return 0;
  return element_ == 4 ? wrong<float>(as_float) : wrong<uint16_t>(as_bfloat16);
}

void serve(const std::string& folder, int rank, int ranks, const MakeOperation& make,
           const Memory& memory) {
  pin(rank);
  SharedBarrier* barrier = SharedBarrier::in_file(folder + "/barrier");
  std::ifstream in(folder + "/in." + std::to_string(rank));
  std::ofstream out(folder + "/out." + std::to_string(rank));
  out << "pid " << ::getpid() << std::endl;
  for (std::string line; std::getline(in, line) && line != "quit";) {
    std::istringstream words(line);
    Request request;
    words >> request.collective >> request.type >> request.bytes >> request.warmup >>
        request.iterations >> request.batch;
    try {
      out << measure(request, rank, ranks, *barrier, make, memory) << std::endl;
    } catch (const std::invalid_argument& reason) {
      out << "no " << reason.what() << std::endl;
    }
  }
}

}  // namespace hccl_like::bench
