#include "process_group/diagnosis/call_sites.h"

#include <charconv>
#include <set>
#include <utility>

#include "collectives/call/fingerprint.h"
#include "core/base/log.h"
#include "process_group/diagnosis/profiling.h"
#include "process_group/diagnosis/program.h"

namespace hccl_like {
namespace {

constexpr std::string_view kMark = "[call site ";  // written by describe_fingerprint()

bool has_root(const Request& request) {
  switch (request.collective) {
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter:
      return true;
    default:
      return false;
  }
}

// Never 0: 0 means no call site.
uint32_t hash_of(const std::string& site) {
  uint64_t hash = 0;
  for (const char byte : site) hash = mix(hash, static_cast<unsigned char>(byte));
  return static_cast<uint32_t>(1 + hash % (Fingerprint::kSites - 1));
}

// Interns a text for the life of the process.
std::string_view kept(std::string text) {
  static std::mutex mutex;
  static auto& all = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return *all.insert(std::move(text)).first;
}

}  // namespace

CallSites::CallSites(c10::intrusive_ptr<c10d::Store> store, std::string prefix)
    : store_(std::move(store)), prefix_(std::move(prefix)) {}

std::string CallSites::key(uint32_t number) const {
  return prefix_ + "site/" + std::to_string(number);
}

void CallSites::note(Issue& issue) {
  const auto line = line_here();
  if (!line) return;
  issue.line = kept(line->text());
  if (is_message(issue)) return;
  for (Request& request : issue.requests)
    request.site = number_of(has_root(request) ? line->function_text() : line->text());
}

uint32_t CallSites::number_of(const std::string& site) {
  const uint32_t number = hash_of(site);
  {
    const std::lock_guard lock(mutex_);
    std::string& name = names_[number];
    if (name == site) return number;
    name = site;
  }
  try {
    if (store_) {
      store_->set(key(number), site);
      (void)store_->check(
          {key(number)});  // set() may be asynchronous; the reply shows that it is done
    }
  } catch (const std::exception& problem) {
    log_info([&] { return std::string("a call site was not written down: ") + problem.what(); });
  }
  return number;
}

std::string CallSites::name_of(uint32_t number) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = names_.find(number); found != names_.end()) return found->second;
  }
  if (!store_) return {};
  try {
    if (!store_->check({key(number)})) return {};
    const std::string name = store_->get_to_str(key(number));
    const std::lock_guard lock(mutex_);
    return names_[number] = name;
  } catch (const std::exception&) {  // the store's server has exited
    return {};
  }
}

std::string CallSites::named(const std::string& text) {
  std::string named;
  size_t at = 0;
  for (size_t mark; (mark = text.find(kMark, at)) != std::string::npos;) {
    const size_t begin = mark + kMark.size();
    uint32_t number = 0;
    const auto [end, problem] =
        std::from_chars(text.data() + begin, text.data() + text.size(), number, 16);
    const std::string name = problem == std::errc() ? name_of(number) : std::string();
    const size_t after = static_cast<size_t>(end - text.data());
    named += text.substr(at, mark + 1 - at);
    named += name.empty() ? text.substr(mark + 1, after - mark - 1) : name;
    at = after;
  }
  return named + text.substr(at);
}

}  // namespace hccl_like
