#include "transport/metrics/metrics_text.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

namespace hccl_like {
namespace {

using counter_layout::Calls;
using counter_layout::File;
using counter_layout::Group;
using counter_layout::Peer;

// Backslash, quote and line feed are escaped in the value of a label.
std::string label_value(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '\\' || letter == '"') escaped += '\\';
    if (letter == '\n')
      escaped += "\\n";
    else
      escaped += letter;
  }
  return escaped;
}

std::string seconds(uint64_t nanoseconds) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.9f", static_cast<double>(nanoseconds) / 1e9);
  return text.data();
}

struct CallMetric {
  const char* name;
  const char* help;
  std::string (*value)(const Calls&);
};
constexpr std::array kCallMetrics{
    CallMetric{"hccl_like_calls_total", "Calls that ended well.",
               [](const Calls& calls) { return std::to_string(calls.over); }},
    CallMetric{"hccl_like_failed_calls_total", "Calls that ended with an error.",
               [](const Calls& calls) { return std::to_string(calls.failed); }},
    CallMetric{"hccl_like_bytes_total",
               "Bytes of the calls that ended well, of each the larger of input and output.",
               [](const Calls& calls) { return std::to_string(calls.bytes); }},
    CallMetric{"hccl_like_seconds_total",
               "Seconds from a call to its end, of the calls that ended well.",
               [](const Calls& calls) { return seconds(calls.nanoseconds); }},
};

struct PeerMetric {
  const char* name;
  const char* type;
  const char* help;
  std::string (*value)(const Peer&);
};
constexpr std::array kPeerMetrics{
    PeerMetric{"hccl_like_messages_sent_total", "counter",
               "Messages to a peer over its connection.",
               [](const Peer& peer) { return std::to_string(peer.sent); }},
    PeerMetric{"hccl_like_sent_bytes_total", "counter", "Bytes of the messages to a peer.",
               [](const Peer& peer) { return std::to_string(peer.sent_bytes); }},
    PeerMetric{"hccl_like_messages_received_total", "counter",
               "Messages from a peer over its connection.",
               [](const Peer& peer) { return std::to_string(peer.received); }},
    PeerMetric{"hccl_like_received_bytes_total", "counter", "Bytes of the messages from a peer.",
               [](const Peer& peer) { return std::to_string(peer.received_bytes); }},
    PeerMetric{"hccl_like_waited_seconds_total", "counter",
               "Seconds in which calls could not go on, because they waited for this peer.",
               [](const Peer& peer) { return seconds(peer.waited); }},
    PeerMetric{"hccl_like_reconnections_total", "counter",
               "Connections to a peer that took the place of broken ones.",
               [](const Peer& peer) { return std::to_string(peer.reconnected); }},
    PeerMetric{"hccl_like_rails_down", "gauge",
               "Connections to a peer that are broken now, or go over another network than at "
               "first.",
               [](const Peer& peer) { return std::to_string(peer.rails_down); }},
};

struct GroupMetric {
  const char* name;
  const char* type;
  const char* help;
  std::string (*value)(const Group&, uint64_t now_ns);
};

uint64_t running(const Group& group) {
  const uint64_t launched = group.launched, finished = group.finished;
  return launched > finished ? launched - finished : 0;
}

constexpr std::array kGroupMetrics{
    GroupMetric{"hccl_like_in_flight", "gauge", "Calls that have not ended.",
                [](const Group& group, uint64_t) { return std::to_string(running(group)); }},
    GroupMetric{"hccl_like_in_flight_seconds", "gauge",
                "Seconds since the first of the calls in flight began, or one ended; 0: none is in "
                "flight. It grows while a rank waits.",
                [](const Group& group, uint64_t now_ns) {
                  const uint64_t since = group.progress_ns;
                  return seconds(running(group) > 0 && now_ns > since ? now_ns - since : 0);
                }},
    GroupMetric{"hccl_like_collectives_made_total", "counter",
                "Number of the latest collective call. A rank whose number stays behind keeps the "
                "others of its group waiting.",
                [](const Group& group, uint64_t) { return std::to_string(group.collective); }},
    GroupMetric{"hccl_like_refused_calls_total", "counter",
                "Calls that were refused because the group has failed.",
                [](const Group& group, uint64_t) { return std::to_string(group.refused); }},
};

std::string head(std::string_view name, std::string_view type, std::string_view help) {
  std::string text = "# HELP ";
  text.append(name).append(" ").append(help).append("\n# TYPE ");
  return text.append(name).append(" ").append(type).append("\n");
}

std::string labels_of(const Group& group) {
  return "rank=\"" + std::to_string(group.global_rank) + "\",group=\"" +
         label_value(group.name.data()) + "\",group_size=\"" + std::to_string(group.size) + "\"";
}

// Eight letters in a number, the first in the lowest byte.
std::string transport_of(const Peer& peer) {
  std::string name;
  for (uint64_t left = peer.transport; left != 0; left >>= 8) name += static_cast<char>(left);
  return label_value(name);
}

template <class See>
void each_group(const File& counters, const See& see) {
  for (const Group& group : counters.groups)
    if (group.serial.load(std::memory_order_acquire) != 0) see(group, labels_of(group));
}

}  // namespace

std::string metrics_text(const File& counters, uint64_t now_ns) {
  const auto& header = counters.header;
  std::string text =
      head("hccl_like_info", "gauge", "The process: its rank in the largest group, and the job.");
  std::array<char, 24> job{};
  std::snprintf(job.data(), job.size(), "j%08x", static_cast<unsigned>(header.job >> 32));
  text.append("hccl_like_info{rank=\"").append(std::to_string(header.rank));
  text.append("\",world_size=\"").append(std::to_string(header.size));
  text.append("\",job_id=\"").append(job.data()).append("\"} 1\n");
  text += head("hccl_like_start_time_seconds", "gauge", "When the first group was made.");
  text.append("hccl_like_start_time_seconds ").append(seconds(header.started_ns)).append("\n");
  for (const CallMetric& metric : kCallMetrics) {
    text += head(metric.name, "counter", metric.help);
    each_group(counters, [&](const Group& group, const std::string& labels) {
      for (size_t kind = 0; kind < header.kinds; ++kind) {
        const Calls& calls = group.calls[kind];
        if (calls.over == 0 && calls.failed == 0) continue;
        text.append(metric.name).append("{").append(labels).append(",collective=\"");
        text.append(header.names[kind].data()).append("\"} ");
        text.append(metric.value(calls)).append("\n");
      }
    });
  }
  for (const GroupMetric& metric : kGroupMetrics) {
    text += head(metric.name, metric.type, metric.help);
    each_group(counters, [&](const Group& group, const std::string& labels) {
      text.append(metric.name).append("{").append(labels).append("} ");
      text.append(metric.value(group, now_ns)).append("\n");
    });
  }
  for (const PeerMetric& metric : kPeerMetrics) {
    text += head(metric.name, metric.type, metric.help);
    for (const Peer& peer : counters.peers) {
      if (peer.number == 0 || (peer.transport == 0 && peer.waited == 0)) continue;
      text.append(metric.name).append("{rank=\"").append(std::to_string(header.rank));
      text.append("\",peer=\"").append(std::to_string(peer.number - 1)).append("\",transport=\"");
      text.append(transport_of(peer)).append("\"} ");
      text.append(metric.value(peer)).append("\n");
    }
  }
  return text;
}

}  // namespace hccl_like
