#include "process_group/backend/membership.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"

namespace hccl_like {
namespace {

// Interval at which a waiting rank checks for conflicts.
constexpr std::chrono::milliseconds kBetweenLooks{250};

std::string list_of(const std::vector<uint64_t>& ranks) {
  std::string text = "[";
  for (const uint64_t rank : ranks) text += (text.size() > 1 ? ", " : "") + std::to_string(rank);
  return text + "]";
}

// Parses "rank 0 passed [0, 1]".
constexpr std::string_view kRank = "rank ", kPassed = " passed ";
std::vector<uint64_t> members_in(const std::string& declared) {
  std::istringstream list(declared.substr(std::min(declared.size(), declared.find('[') + 1)));
  std::vector<uint64_t> members;
  char comma = 0;
  for (uint64_t member = 0; list >> member; list >> comma) members.push_back(member);
  return members;
}

std::vector<uint8_t> as_bytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

Membership::Membership(c10::intrusive_ptr<c10d::Store> store, const std::string& parent,
                       std::string group, int rank, std::vector<uint64_t> members)
    : store_(std::move(store)),
      key_(parent + "members/" + group),
      group_(std::move(group)),
      rank_(rank),
      members_(std::move(members)),
      own_(std::string(kRank) + std::to_string(rank) + std::string(kPassed) + list_of(members_)),
      meeting_place_(parent + std::to_string(*std::ranges::min_element(members_)) + "/") {}

bool Membership::is_member(uint64_t rank) const {
  return std::ranges::find(members_, rank) != members_.end();
}

bool Membership::conflicts_with(const std::string& declared) const {
  const auto list = members_in(declared);
  return std::ranges::find(list, static_cast<uint64_t>(rank_)) != list.end() ||
         std::ranges::any_of(list, [this](uint64_t rank) { return is_member(rank); });
}

// Stores the error for the ranks that wait with either list.
void Membership::conflict(int list, const std::string& declared) {
  const std::string text = "ranks disagree about the members of group " + group_ + ": " + declared +
                           ", " + own_ +
                           ". Every rank must make the same calls of new_group in the same order, "
                           "with the same ranks";
  for (const int place : {list, own_list_})
    store_->set(key_of(place) + "/conflict", as_bytes(text));
  throw_error(ErrorCode::kMismatch, text);
}

void Membership::declare() {
  const std::string list = std::string(kPassed) + list_of(members_);
  std::optional<std::pair<int, std::string>> other;
  try {
    for (;; ++own_list_) {
      const auto stored = store_->compareSet(key_of(own_list_), {}, as_bytes(own_));
      const std::string declared(stored.begin(), stored.end());
      if (declared.ends_with(list)) break;
      if (conflicts_with(declared)) other = {own_list_, declared};
    }
    if (!is_member(static_cast<uint64_t>(rank_)))
      store_->append(key_ + "/outside",
                     as_bytes(std::to_string(rank_) + " " + std::to_string(own_list_) + "\n"));
  } catch (const std::exception& problem) {
    log_warn("the members of group " + group_ + " are not compared between ranks: " +
             std::string(problem.what()).substr(0, std::string(problem.what()).find('\n')));
    return;
  }
  if (other) conflict(other->first, other->second);
  check();
}

void Membership::check() {
  asked_of_store("compare the members of group " + group_, [this] {
    const std::string key = key_of(own_list_) + "/conflict";
    if (store_->check({key})) throw_error(ErrorCode::kMismatch, store_->get_to_str(key));
    check_outside();
  });
}

// Throws if a member of this list has passed a list without itself.
void Membership::check_outside() {
  const std::string key = key_ + "/outside";
  if (!is_member(static_cast<uint64_t>(rank_)) || !store_->check({key})) return;
  std::istringstream lines(store_->get_to_str(key));
  uint64_t rank = 0;
  for (int list = 0; lines >> rank >> list;)
    if (is_member(rank))
      conflict(own_list_, std::string(kRank) + std::to_string(rank) + list_at(list));
}

// " passed [0, 1]".
std::string Membership::list_at(int place) const {
  const std::string declared = store_->get_to_str(key_of(place));
  return declared.substr(std::min(declared.size(), declared.find(kPassed)));
}

std::string MembershipStore::get(const std::string& key, Deadline deadline) {
  for (;;) {
    try {
      return store_.get(key, earliest(deadline, Deadline::after(kBetweenLooks)));
    } catch (const Exception& exception) {
      if (exception.code() != ErrorCode::kTimeout || deadline.expired()) throw;
    }
    membership_.check();
  }
}

}  // namespace hccl_like
