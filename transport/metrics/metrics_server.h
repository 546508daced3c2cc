#pragma once
// Thread that tells Prometheus the counters of this process, over HTTP or through a file.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "core/base/deadline.h"
#include "core/base/fd.h"
#include "core/counters/counter_file.h"
#include "core/settings/config_values.h"
#include "transport/bootstrap/listener.h"

namespace hccl_like {

// Read-only. HTTP: GET /metrics; one request at a time, each within two seconds. File: written in
// one step every 15 seconds, and removed at the end. Needs no interpreter, so it answers in a hang.
class MetricsServer {
 public:
  // `local_rank` is added to the port, or stands in the file's name. Throws kSystem for a port that
  // is taken and for a file that cannot be written.
  MetricsServer(const MetricsTarget& target, int local_rank,
                std::shared_ptr<const CounterFile> counters);
  // Joins the thread. In a child of fork() release the object instead.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // "127.0.0.1:9400" or the file's path.
  const std::string& where() const { return where_; }

 private:
  std::string text() const;
  void serve() const;
  void answer(int client) const;
  std::string request_of(int client, Deadline deadline) const;
  void send(int client, std::string_view all, Deadline deadline) const;
  enum class Event : uint8_t { kReady, kTimeout, kStop };
  Event wait(int fd, short events, Deadline deadline) const;
  void write() const;
  void rewrite() const;

  const std::shared_ptr<const CounterFile> counters_;
  std::string where_;
  std::string file_;  // empty: HTTP
  std::unique_ptr<Listener> listener_;
  Fd stop_;
  std::thread thread_;
};

}  // namespace hccl_like
