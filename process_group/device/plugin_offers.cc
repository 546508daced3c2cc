#include "process_group/device/plugin_offers.h"

namespace hccl_like {
namespace {

struct OfferQuestion {
  const char* entries;
  bool (*present)(const Device& plugin);
  const char* if_present;
  const char* if_absent;
};

constexpr OfferQuestion kOfferQuestions[] = {
    {"device_info", [](const Device& plugin) { return plugin.can_describe_itself(); },
     "what the device can do decides how it is used; its place on the host is shown",
     "nothing is taken for granted: copies block, mappings are not kept, its place is unknown"},
    {"map, unmap", [](const Device& plugin) { return plugin.can_map(); },
     "the host works on device memory in place, if the device works beside it "
     "(HCD_CAP_COHERENT_MAP)",
     "data is copied to and from the host"},
    {"stream_from_torch", [](const Device& plugin) { return plugin.can_translate_streams(); },
     "the plugin can be told which stream is meant", "calls and wait() block the host"},
    {"host_func", [](const Device& plugin) { return plugin.has_host_func(); },
     "the network step is part of a stream, if the plugin knows torch's streams and they have "
     "events",
     "the words below stand in for it, else calls and wait() block the host"},
    {"stream_wait_value, stream_write_value",
     [](const Device& plugin) { return plugin.can_wait_on_words(); },
     "host functions are made of them where host_func is missing: a thread runs what the stream "
     "waits for",
     "nothing stands in for host_func"},
    {"ipc_export, ipc_open, ipc_close", [](const Device& plugin) { return plugin.can_export(); },
     "peers on this host map memory that is worked on in place, and copy nothing",
     "peers on this host are sent copies"},
    {"ipc_lives", [](const Device& plugin) { return plugin.can_tell_freed_exports(); },
     "peers on this host close their mapping of memory that was freed, at a later call",
     "peers on this host keep memory that was freed until they have mapped too much"},
    {"peer_open, peer_close", [](const Device& plugin) { return plugin.can_open_peers(); },
     "the device's own operators read and write a peer's memory: symmetric memory, and large calls "
     "that streams make among themselves, beside copy_d2d, reduce, mem_alloc, events and streams "
     "of "
     "its own",
     "there is no symmetric memory on the device, and large calls go through the host"},
    {"stream_create, stream_destroy",
     [](const Device& plugin) { return plugin.can_make_streams(); },
     "where large calls are staged, each thread that copies has a stream of its own",
     "staged copies queue on torch's streams, or block; calls in stream order go in one piece"},
    {"event_record, stream_wait_event, event_query, event_sync, event_destroy",
     [](const Device& plugin) { return plugin.can_record_events(); },
     "a large call that is staged is issued without waiting for the caller's stream, if the plugin "
     "knows torch's streams",
     "a large call that is staged waits for the caller's stream, on the host; in stream order it "
     "goes in one piece"},
    {"host_register, host_unregister",
     [](const Device& plugin) { return plugin.can_register_host(); },
     "staged calls go through memory that the device copies fast and that peers on this host map",
     "staged calls go through memory that torch pins, if it can"},
    {"host_alloc, host_free", [](const Device& plugin) { return plugin.can_allocate_host(); },
     "staged calls go through the plugin's memory where neither it can register nor torch can pin "
     "any",
     "staged calls go through ordinary memory where there is no better"},
    {"copy_d2d", [](const Device& plugin) { return plugin.can_copy_within(); },
     "symmetric memory that the host cannot map is copied by the plugin",
     "symmetric memory that the host cannot map is copied by torch's operators"},
    {"reduce", [](const Device& plugin) { return plugin.can_reduce(); },
     "symmetric memory that the host cannot map is added up by the plugin's kernels, beside "
     "copy_d2d",
     "symmetric memory that the host cannot map is added up by torch's operators"},
    {"reduce_many", [](const Device& plugin) { return plugin.can_reduce_many(); },
     "large calls that streams make read all sources of a sum at once and round it once; averages, "
     "too",
     "large calls that streams make add one source after the other; averages go through the host"},
    {"all_reduce_small", [](const Device& plugin) { return plugin.can_all_reduce_small(); },
     "an all_reduce of up to 64 KiB by ranks on one host is one kernel of each, in graphs or where "
     "the host does not map the device's memory",
     "an all_reduce of little data goes through the host; in graphs it is several kernels and "
     "waits for words"},
    {"export_fd, identify",
     [](const Device& plugin) { return plugin.can_export_files() && plugin.can_identify(); },
     "network cards that take memory of devices (libfabric's FI_HMEM) move large calls without "
     "staging, but for sums",
     "large calls between hosts are staged where memory is not mapped, whatever the network card"},
};

}  // namespace

std::vector<PluginOffer> plugin_offers(const DeviceAccess& access) {
  std::vector<PluginOffer> offers;
  if (access.plugin() == nullptr) return offers;
  for (const OfferQuestion& question : kOfferQuestions) {
    const bool present = question.present(*access.plugin());
    offers.push_back(
        {question.entries, present, present ? question.if_present : question.if_absent});
  }
  return offers;
}

}  // namespace hccl_like
