#include "process_group/diagnosis/other_hosts.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "core/base/log.h"
#include "core/base/own_thread.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAnswersWithin{2000};
constexpr milliseconds kNextQuestion{20};     // between two looks while somebody asks
constexpr milliseconds kNoQuestions{10'000};  // after which the thread ends

// A rank of an answer: its number, the lengths of the three texts, and the texts.
void append(std::string& answer, const RankCounters& one) {
  const std::array numbers{static_cast<uint32_t>(one.rank), static_cast<uint32_t>(one.host.size()),
                           static_cast<uint32_t>(one.problem.size()),
                           static_cast<uint32_t>(one.content.size())};
  answer.append(reinterpret_cast<const char*>(numbers.data()), sizeof numbers);
  answer.append(one.host).append(one.problem).append(one.content);
}

}  // namespace

OtherHosts::OtherHosts(const Mesh& mesh) : mesh_(mesh) {}

OtherHosts::~OtherHosts() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void OtherHosts::set(const std::vector<ProcessRecord>& members) {
  std::vector<RankRecord> ranks;
  for (size_t rank = 0; rank < members.size(); ++rank)
    if (members[rank].host != mesh_.self().host)
      ranks.push_back({static_cast<int>(rank), members[rank]});
  std::lock_guard lock(mutex_);
  ranks_ = std::move(ranks);
  if (ranks_.empty() || questions_) return;
  questions_ = QuestionFile::make();
  file_ = questions_.get();
}

void OtherHosts::look() noexcept {
  const QuestionFile* const file = file_;
  if (file == nullptr || serving_ || file->asked() == 0) return;
  if (thread_.joinable()) thread_.join();
  serving_ = true;
  try {
    thread_ = own_thread("asks other hosts for their counters", [this, file] {
      serve(*file);
      serving_ = false;
    });
  } catch (const Exception& error) {
    serving_ = false;
    log_warn(error.what());
  }
}

void OtherHosts::serve(const QuestionFile& file) {
  uint64_t answered = 0;
  Deadline end = Deadline::after(kNoQuestions);
  while (!stop_ && !end.expired()) {
    if (const uint64_t question = file.asked(); question != answered) {
      file.answer(question, ask());
      answered = question;
      end = Deadline::after(kNoQuestions);
    }
    std::this_thread::sleep_for(kNextQuestion);
  }
  file.forget(answered);
}

std::string OtherHosts::ask() const {
  std::vector<RankRecord> ranks;
  {
    std::lock_guard lock(mutex_);
    ranks = ranks_;
  }
  std::string answer;
  for (const auto& one : mesh_.counters_of(ranks, Deadline::after(kAnswersWithin), stop_))
    append(answer, one);
  return answer;
}

}  // namespace hccl_like
