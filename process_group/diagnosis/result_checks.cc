#include "process_group/diagnosis/result_checks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "collectives/call/fingerprint.h"
#include "collectives/engine/engine.h"
#include "core/base/log.h"
#include "process_group/device/device_capabilities.h"
#include "process_group/diagnosis/profiling.h"

namespace hccl_like {
namespace {

// Whether all ranks must end with the same bytes.
bool equal_everywhere(const Issue& issue) {
  return !issue.requests.empty() && std::ranges::all_of(issue.requests, [](const Request& request) {
    return request.collective == Collective::kAllReduce ||
           request.collective == Collective::kAllGather ||
           request.collective == Collective::kBroadcast;
  });
}

// A root may be far ahead of the other ranks, whose own calls have the time-out of the group.
constexpr std::chrono::hours kPatience{24};

// Four chains of mix(), which overlap: limited by memory.
uint64_t digest(std::span<const std::byte> bytes, uint64_t seed) {
  std::array<uint64_t, 4> chains{seed, seed + 1, seed + 2, seed + 3};
  size_t at = 0;
  for (; at + sizeof(chains) <= bytes.size(); at += sizeof(chains)) {
    std::array<uint64_t, 4> words;
    std::memcpy(words.data(), bytes.data() + at, sizeof(words));
    for (size_t i = 0; i < chains.size(); ++i) chains[i] = mix(chains[i], words[i]);
  }
  std::array<uint64_t, 4> rest{};
  std::memcpy(rest.data(), bytes.data() + at, bytes.size() - at);
  uint64_t result = bytes.size();
  for (size_t i = 0; i < chains.size(); ++i) result = mix(result, mix(chains[i], rest[i]));
  return result;
}

uint64_t digest(const std::vector<at::Tensor>& tensors) {
  uint64_t result = 0;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor elements = tensor.resolve_conj().resolve_neg().cpu().contiguous();
    result = digest({static_cast<const std::byte*>(elements.const_data_ptr()), elements.nbytes()},
                    result);
  }
  return result;
}

std::string ranks_in_words(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  constexpr size_t kMost = 8;
  for (size_t i = 0; i < std::min(ranks.size(), kMost); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return ranks.size() > kMost ? text + " and " + std::to_string(ranks.size() - kMost) + " more"
                              : text;
}

}  // namespace

CheckedCall::~CheckedCall() {
  std::call_once(taken_, [&] { checks_->taken(lane_, number_, std::nullopt); });
}

void CheckedCall::copy_in_stream() {
  try {
    for (at::Tensor& output : outputs_) {
      at::Tensor copy = at::empty_like(output);
      copy.copy_(output, /*non_blocking=*/true);
      output = std::move(copy);
    }
  } catch (const std::exception& error) {  // for want of memory
    log_warn("the result of a call is not compared (HCCL_LIKE_VERIFY): " + words_of(error));
    outputs_.clear();
  }
}

void CheckedCall::take() {
  std::call_once(taken_, [&] {
    ResultChecks::Record mine;
    try {
      if (!outputs_.empty()) mine = {digest(outputs_), 1};
    } catch (const std::exception& error) {
      log_warn("the result of a call is not compared (HCCL_LIKE_VERIFY): " + words_of(error));
    }
    outputs_.clear();
    checks_->taken(lane_, number_, mine);
  });
}

std::shared_ptr<ResultChecks> ResultChecks::of(Communicator& host, Communicator& device) {
  const uint32_t every = host.engine().config().verify.every;
  if (every == 0 || host.size() == 1) return nullptr;
  auto checks = std::make_shared<ResultChecks>();
  checks->every_ = every;
  std::vector<int> everyone(static_cast<size_t>(host.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  checks->lanes_[0].communicator = host.part(everyone);
  checks->lanes_[1].communicator = device.part(everyone);
  return checks;
}

std::shared_ptr<CheckedCall> ResultChecks::next(const Issue& issue) {
  if (!equal_everywhere(issue)) return nullptr;
  std::lock_guard lock(mutex_);
  const bool mixed = lanes_[0].communicator->device_mix() == DeviceMix::kHost;
  const size_t lane = issue.device.is_cpu() || mixed ? 0 : 1;
  const uint64_t number = ++lanes_[lane].calls;
  if (number % every_ != 0) return nullptr;
  std::vector<at::Tensor> outputs;
  size_t bytes = 0;
  for (const Request& request : issue.requests)
    for (const at::Tensor& tensor : request.output.tensors) {
      outputs.push_back(tensor);
      bytes += tensor.nbytes();
    }
  std::string what = operation_name(issue) + " #" + std::to_string(issue.number.number()) + " (" +
                     std::to_string(bytes) + " bytes on " + issue.device.str() + ")";
  if (!issue.line.empty()) what += ", called at " + std::string(issue.line) + ",";
  lanes_[lane].checked.emplace(number, Entry{.what = std::move(what), .mine = std::nullopt});
  return std::make_shared<CheckedCall>(shared_from_this(), lane, number, std::move(outputs));
}

// The n-th exchange of a lane is that of its n-th checked call, on all ranks.
void ResultChecks::taken(size_t lane_number, uint64_t number, std::optional<Record> mine) {
  std::lock_guard lock(mutex_);
  Lane& lane = lanes_[lane_number];
  if (mine)
    lane.checked.at(number).mine = mine;
  else
    lane.checked.erase(number);
  const Communicator& group = *lane.communicator;
  for (auto& [of, call] : lane.checked) {
    if (call.exchange) continue;
    if (!call.mine) return;
    call.all.resize(static_cast<size_t>(group.size()));
    const Region own{reinterpret_cast<std::byte*>(&*call.mine), sizeof(Record)};
    const Region all{reinterpret_cast<std::byte*>(call.all.data()),
                     sizeof(Record) * call.all.size()};
    try {
      call.exchange = lane.communicator->prepare(
          {.collective = Collective::kAllGather,
           .input = Layout::single({&own, 1}, static_cast<size_t>(group.rank()), 1),
           .output = Layout::even(all, call.all.size(), 1),
           .timeout = kPatience});
      lane.communicator->launch({&call.exchange, 1}, /*waited_for=*/false);
    } catch (const Exception&) {  // the group has failed, which its next call tells
      return;
    }
  }
}

std::optional<Error> ResultChecks::difference() {
  std::lock_guard lock(mutex_);
  for (Lane& lane : lanes_) {
    while (!lane.checked.empty()) {
      const Entry& call = lane.checked.begin()->second;
      if (!call.exchange || !call.exchange->done()) break;
      auto error = call.exchange->error() ? std::nullopt : compare(call, *lane.communicator);
      lane.checked.erase(lane.checked.begin());
      if (error) return error;
    }
  }
  return std::nullopt;
}

std::optional<Error> ResultChecks::last_difference(Deadline deadline) {
  std::vector<std::shared_ptr<Operation>> sent;
  {
    std::lock_guard lock(mutex_);
    for (const Lane& lane : lanes_)
      for (const auto& [number, call] : lane.checked)
        if (call.exchange) sent.push_back(call.exchange);
  }
  for (const auto& exchange : sent)
    if (!exchange->communicator().engine().wait(*exchange, deadline)) break;
  return difference();
}

std::optional<Error> ResultChecks::compare(const Entry& call, const Communicator& communicator) {
  std::map<uint64_t, std::vector<int>> by_digest;
  for (size_t rank = 0; rank < call.all.size(); ++rank)
    if (call.all[rank].known == 1)
      by_digest[call.all[rank].digest].push_back(communicator.number_of(static_cast<int>(rank)));
  if (by_digest.size() < 2) return std::nullopt;
  std::vector<std::vector<int>> groups;
  for (auto& [value, ranks] : by_digest) groups.push_back(std::move(ranks));
  // The most ranks first; of as many, those with the first rank.
  std::ranges::sort(groups, [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  Error error{.code = ErrorCode::kMismatch, .message = call.what + " ended with different bits: "};
  if (groups[0].size() > groups[1].size()) {
    std::vector<int> others;
    for (size_t i = 1; i < groups.size(); ++i)
      others.insert(others.end(), groups[i].begin(), groups[i].end());
    std::ranges::sort(others);
    error.message +=
        ranks_in_words(others) + " against " + std::to_string(groups[0].size()) + " that agree";
    error.peer = others[0];
  } else {
    for (size_t i = 0; i < groups.size(); ++i)
      error.message += (i == 0 ? "" : " against ") + ranks_in_words(groups[i]);
  }
  error.message +=
      "; a device or memory is faulty, or the program wrote a tensor while the call ran";
  return error;
}

}  // namespace hccl_like
