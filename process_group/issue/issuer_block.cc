// Coalescing blocks: calls that are collected and issued as one.
#include <algorithm>

#include "process_group/diagnosis/errors.h"
#include "process_group/issue/issuer.h"

namespace hccl_like {
namespace {

constexpr const char* kBlockTitle = "hccl-like:coalesced";

}  // namespace

void Issuer::begin_block() {
  translated("hccl-like coalescing", [&] {
    group();
    std::lock_guard lock(mutex_);
    if (block_)
      throw_misuse("a coalescing block is open already; end it first, blocks do not nest");
    block_.emplace();
    diagnosis_.begin_block();
  });
}

bool Issuer::in_block() const {
  std::lock_guard lock(mutex_);
  return block_.has_value();
}

// With mutex_ held and a block open. Copies the caller's lists, which end with the call.
void Issuer::collect(Issue& issue, const Group& group, c10::intrusive_ptr<Work>& work) {
  if (!block_->issue) {
    block_->issue = Issue{.description = {.title = kBlockTitle, .type = c10d::OpType::COALESCED},
                          .device = issue.device,
                          .timeout = issue.timeout,
                          .profiled = issue.profiled};
    block_->work = c10::make_intrusive<Work>(block_->issue->description, group.session,
                                             group.communicators->host()->rank(), number_);
  }
  Issue& all = *block_->issue;
  if (all.device != issue.device) {
    throw_misuse("the calls of a coalescing block must be on one device, got " + all.device.str() +
                 " and " + issue.device.str());
  }
  diagnosis_.collected(issue);
  for (Request& request : issue.requests) {
    for (Side* side : {&request.input, &request.output})
      side->tensors = all.keep(side->tensors.vec());
    all.requests.push_back(std::move(request));
  }
  block_->work->add_outputs(issue.description.outputs);
  all.timeout = std::max(all.timeout, issue.timeout);
  all.blocking = all.blocking || issue.blocking;
  if (issue.async) work = block_->work;
}

c10::intrusive_ptr<Work> Issuer::end_block() {
  return translated("hccl-like coalescing", [&] {
    std::optional<Block> block;
    {
      std::lock_guard lock(mutex_);
      block.swap(block_);
    }
    if (!block) throw_misuse("no coalescing block is open; begin one first");
    if (!block->issue)
      block->issue = Issue{.description = {.title = kBlockTitle, .type = c10d::OpType::COALESCED}};
    block->issue->number = diagnosis_.end_block();
    return start(*block->issue, group(), std::move(block->work));
  });
}

}  // namespace hccl_like
