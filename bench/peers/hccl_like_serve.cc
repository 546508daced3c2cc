// Ours, measured as the other libraries are (serve.h).
//
//   hccl_like_serve FOLDER RANKS ordinary|mapped [NAMESPACE,...]
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/cpp/collective.h"
#include "bench/cpp/name_space.h"
#include "bench/peers/serve.h"
#include "collectives/engine/communicator.h"
#include "collectives/engine/runtime.h"
#include "core/settings/config.h"
#include "device/host/host_api.h"
#include "device/host/shared_pool.h"
#include "transport/testing/run_ranks.h"

namespace hccl_like::bench {
namespace {

constexpr auto kTimeout = std::chrono::minutes(2);
constexpr auto kLongest = std::chrono::hours(24);

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

Memory mapped_memory() {
  return {.allocate = [](size_t bytes) { return SharedPool::of_process().allocate(bytes); },
          .free = [](void* memory) { SharedPool::of_process().free(memory); }};
}

std::function<void()> operation(Communicator& communicator, const Request& request,
                                const PeerBuffers& buffers, const Device* shared) {
  const Case row{.rank = communicator.rank(),
                 .ranks = communicator.size(),
                 .count = buffers.count(),
                 .type = request.type == "float" ? DataType::kFloat32 : DataType::kBFloat16,
                 .op = ReduceOp::kSum,
                 .root = 0};
  const auto calls =
      calls_of(shape(request.collective), row, {buffers.send(), buffers.sent_bytes()},
               {buffers.receive(), buffers.received_bytes()}, shared);
  if (calls.size() == 1) return [&communicator, call = calls[0]] { communicator.run(call); };
  return [&communicator, calls] { communicator.run(calls); };
}

int serve_ours(const std::string& folder, int rank, int ranks, bool mapped, Store& store) {
  Runtime runtime(Config::from_environment());
  const auto communicator =
      runtime.create(store, rank, ranks, "bench", kTimeout, Deadline::after(kTimeout));
  const Device host{host_api()};
  serve(
      folder, rank, ranks,
      [&](const Request& request, const PeerBuffers& buffers) {
        return operation(*communicator, request, buffers, mapped ? &host : nullptr);
      },
      mapped ? mapped_memory() : Memory::of_malloc());
  return 0;
}

}  // namespace
}  // namespace hccl_like::bench

int main(int argc, char** argv) {
  using namespace hccl_like;
  using namespace hccl_like::bench;
  const std::string memory = argc < 4 ? "" : argv[3];
  if (memory != "ordinary" && memory != "mapped") {
    std::cerr << "usage: hccl_like_serve FOLDER RANKS ordinary|mapped [NAMESPACE,...]\n";
    return 2;
  }
  const int ranks = std::stoi(argv[2]);
  const std::vector<std::string> hosts = argc > 4 ? split(argv[4]) : std::vector<std::string>{};
  const auto outcomes =
      run_ranks(ranks,
                [&](int rank, Store& store) {
                  if (!hosts.empty()) enter_name_space(name_space_of(rank, ranks, hosts));
                  return serve_ours(argv[1], rank, ranks, memory == "mapped", store);
                },
                {.timeout = kLongest});
  if (all_ok(outcomes)) return 0;
  std::cerr << "failed: " << to_string(outcomes) << "\n";
  return 1;
}
