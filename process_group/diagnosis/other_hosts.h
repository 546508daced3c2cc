#pragma once
// Answers questions of this host for the counters of ranks on other hosts: hccl-like top
// --all-hosts.
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/counters/question_file.h"
#include "transport/mesh/mesh.h"

namespace hccl_like {

// One per session. Costs a system call for each look() while nobody asks, and nothing on one host.
// A thread that asks the ranks begins with a question, and ends when none has come for some
// seconds.
class OtherHosts {
 public:
  explicit OtherHosts(const Mesh& mesh);
  // Joins the thread. In a child of fork() release the object instead.
  ~OtherHosts();
  OtherHosts(const OtherHosts&) = delete;
  OtherHosts& operator=(const OtherHosts&) = delete;

  // The members of the largest group. Any thread.
  void set(const std::vector<ProcessRecord>& members);
  // Whether somebody asks. By one thread.
  void look() noexcept;

 private:
  void serve(const QuestionFile& file);
  std::string ask() const;

  const Mesh& mesh_;
  std::unique_ptr<const QuestionFile> questions_;   // null where all ranks are on this host
  std::atomic<const QuestionFile*> file_{nullptr};  // the same, for the watchdog
  std::thread thread_;
  std::atomic<bool> stop_{false}, serving_{false};
  mutable std::mutex mutex_;
  std::vector<RankRecord> ranks_;  // those of other hosts
};

}  // namespace hccl_like
