#include "collectives/stream/exchange_messages.h"

#include <algorithm>
#include <utility>

#include "collectives/engine/engine.h"

namespace hccl_like {

std::vector<std::shared_ptr<Operation>> messages_after(const std::shared_ptr<Operation>& exchange,
                                                       Collective direction, uint32_t slice,
                                                       std::span<std::byte> bytes,
                                                       std::chrono::milliseconds timeout) {
  Communicator& communicator = exchange->communicator();
  std::vector<std::shared_ptr<Operation>> operations;
  for (int peer = 0; peer < communicator.size() && !communicator.has_failed(); ++peer) {
    if (peer == communicator.rank()) continue;
    Call one{.collective = direction, .root = peer, .number = exchange->number()};
    one.timeout = timeout;
    const Region byte{&bytes[static_cast<size_t>(peer)], 1};
    (direction == Collective::kSend ? one.input : one.output) = Layout::even(byte, 1, 1);
    try {
      operations.push_back(communicator.prepare_slice(exchange, std::move(one), slice, 1));
    } catch (const Exception&) {  // the group has just failed
      break;
    }
  }
  return operations;
}

bool all_agree(const std::shared_ptr<Operation>& exchange, uint32_t slice, bool good,
               std::chrono::milliseconds timeout) {
  Communicator& communicator = exchange->communicator();
  const auto ranks = static_cast<size_t>(communicator.size());
  std::vector<std::byte> said(ranks, std::byte{good}), heard(ranks, std::byte{0});
  heard[static_cast<size_t>(communicator.rank())] = std::byte{good};
  auto operations = messages_after(exchange, Collective::kRecv, slice, heard, timeout);
  for (auto& send : messages_after(exchange, Collective::kSend, slice, said, timeout))
    operations.push_back(std::move(send));
  communicator.launch(operations, /*waited_for=*/true);
  communicator.engine().wait(operations, Deadline::never());
  return std::ranges::all_of(heard, [](std::byte one) { return one == std::byte{1}; }) &&
         std::ranges::none_of(operations, [](const auto& one) { return one->error() != nullptr; });
}

}  // namespace hccl_like
