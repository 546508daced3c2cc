#include "device/device.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "device/host/host_api.h"
#include "device/plugin_table.h"
#include "device/testing/fake_device.h"

namespace hccl_like {
namespace {

template <typename Act>
std::string complaint(const Act& act) {
  try {
    act();
  } catch (const Exception& e) {
    EXPECT_EQ(e.code(), ErrorCode::kDevice);
    return e.error().message;
  }
  return "no complaint";
}

// The fake's table as an old plugin has it: nothing from `entry` on.
hcd_api shortened(size_t size) {
  hcd_api api = fake_device::make_api();
  api.size = size;
  return api;
}

TEST(Device, TellsWhatThePluginSaysOfIt) {
  const Device device(fake_device::api());
  EXPECT_EQ(device.name(), "fake");
  const DeviceInfo info = device.info(0).value();
  EXPECT_TRUE(info.has(HCD_CAP_ASYNC_COPY));
  EXPECT_FALSE(info.has(HCD_CAP_HOST_DEREF));
  EXPECT_EQ(info.numa_node, 1);
  EXPECT_EQ(info.uuid, "fake-0");
  EXPECT_EQ(info.pci, "0000:3b:00.0");
}

TEST(Device, KnowsNothingWithoutDeviceInfo) {
  hcd_api api = fake_device::make_api();
  api.device_info = nullptr;
  const DeviceInfo info = Device(api).info(0).value();
  EXPECT_EQ(info.caps, 0u);
  EXPECT_EQ(info.numa_node, -1);
}

TEST(Device, TranslatesTorchStreams) {
  const Device device(fake_device::api());
  EXPECT_EQ(device.stream_from_torch(0, 1, nullptr).value(), fake_device::kStream);
  EXPECT_EQ(device.stream_from_torch(0, 2, nullptr).error(),
            (Error{ErrorCode::kDevice,
                   "fake:0 could not translate a torch stream (stream_from_torch of its plugin): "
                   "there is one stream, 1"}));
}

TEST(Device, GivesThePluginsSentence) {
  const Device device(fake_device::api());
  void* const base = fake_device::allocate(10);
  char byte = 0;
  EXPECT_EQ(device.copy_to_host(0, &byte, {base, 10}, 1, 0),
            (Error{ErrorCode::kDevice,
                   "fake:0 could not copy to the host (copy_d2h of its plugin): the range leaves "
                   "the allocation"}));
  EXPECT_EQ(device.map(0, {base, 9}, 2).error().message,
            "fake:0 could not map memory for the host (map of its plugin): the range leaves the "
            "allocation");
  EXPECT_EQ(device.info(3).error().message,
            "fake:3 could not describe itself (device_info of its plugin): there is one device, 0");
  fake_device::free(base);
}

TEST(Device, SaysWhatANullEntryMeans) {
  const Device host(host_api());
  EXPECT_TRUE(host.can_map());
  EXPECT_FALSE(host.can_queue_functions() || host.can_wait_on_words() || host.can_open_peers() ||
               host.can_translate_streams());
  uint64_t word = 0;
  const auto nothing = [](void*) {};
  EXPECT_EQ(host.host_function(0, 0, nothing, nullptr),
            (Error{ErrorCode::kUnsupported,
                   "cpu:0 cannot queue a host function: its plugin has no host_func"}));
  EXPECT_EQ(host.wait_for_word(0, 0, &word, 1)->code, ErrorCode::kUnsupported);
  EXPECT_EQ(host.write_word(0, 0, &word, 1)->code, ErrorCode::kUnsupported);
  EXPECT_EQ(host.stream_from_torch(0, 0, nullptr).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(host.open_peer(0, {}).error().code, ErrorCode::kUnsupported);
  const Device private_memory(fake_device::api());
  EXPECT_EQ(private_memory.export_range(0, {&word, 0}, 8).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(private_memory.import_range(0, {}).error().code, ErrorCode::kUnsupported);
}

TEST(Device, PassesUnsupportedOn) {
  hcd_api api = fake_device::make_api();
  api.host_func = [](int, hcd_stream, void (*)(void*), void*) {
    return fake_device::fail(HCD_UNSUPPORTED, "not on this model");
  };
  const Device device(api);
  EXPECT_EQ(
      device.host_function(0, fake_device::kStream, nullptr, nullptr),
      (Error{
          ErrorCode::kUnsupported,
          "fake:0 could not queue a host function (host_func of its plugin): not on this model"}));
}

TEST(Device, HasMeaningForAStatusWithoutASentence) {
  hcd_api api = fake_device::make_api();
  api.last_error = []() -> const char* { return nullptr; };
  api.stream_sync = [](int, hcd_stream) { return int{HCD_DEVICE_LOST}; };
  EXPECT_EQ(Device(api).synchronize(2, 0)->message,
            "fake:2 could not wait for a stream (stream_sync of its plugin): the device is lost");
}

TEST(Device, UnmapsEachRangeOnce) {
  static int mapped = 0;
  hcd_api api = fake_device::make_api();
  api.map = [](int, hcd_ref, size_t, void** host) {
    *host = &mapped;
    ++mapped;
    return int{HCD_OK};
  };
  api.unmap = [](int, void* host) {
    EXPECT_EQ(host, &mapped);
    --mapped;
    return int{HCD_OK};
  };
  const Device device(api);
  {
    MappedRange first = device.map(0, {}, 4).value();
    EXPECT_EQ(first.size(), 4u);
    MappedRange second = std::move(first);
    EXPECT_EQ(mapped, 1);
    MappedRange third = device.map(0, {}, 4).value();
    EXPECT_EQ(mapped, 2);
    third = std::move(second);
    EXPECT_EQ(mapped, 1);
    third.reset();
    EXPECT_EQ(mapped, 0);
  }
  EXPECT_EQ(mapped, 0);
}

TEST(Device, ClosesImportedMemoryByTheEntryThatBelongsToIt) {
  static int for_host = 0, for_device = 0;
  static unsigned char memory[8];
  hcd_api api = fake_device::make_api();
  api.ipc_export = [](int, hcd_ref, size_t, hcd_ipc_handle*, uint64_t*) { return int{HCD_OK}; };
  api.ipc_open = api.peer_open = [](int, const hcd_ipc_handle*, void** at, size_t* bytes) {
    *at = memory;
    *bytes = sizeof(memory);
    return int{HCD_OK};
  };
  api.ipc_close = [](int, void*) { return ++for_host, int{HCD_OK}; };
  api.peer_close = [](int, void*) { return ++for_device, int{HCD_OK}; };
  const Device device(api);
  {
    ImportedRange imported = device.import_range(0, {}).value();
    ImportedRange opened = device.open_peer(0, {}).value();
    EXPECT_EQ(opened.size(), sizeof(memory));
    std::swap(imported, opened);
    opened.reset();
    EXPECT_EQ(for_host, 1);
    EXPECT_EQ(for_device, 0);
  }
  EXPECT_EQ(for_host, 1);
  EXPECT_EQ(for_device, 1);
}

TEST(Device, StartsAndEndsItsPlugin) {
  const int before = fake_device::starts;
  {
    const Device device(fake_device::api());
    EXPECT_EQ(fake_device::starts, before + 1);
  }
  EXPECT_EQ(fake_device::starts, before);
}

TEST(Device, SaysWhyThePluginDoesNotStart) {
  hcd_api api = fake_device::make_api();
  api.init = [] { return fake_device::fail(HCD_DEVICE_LOST, "the driver is not loaded"); };
  EXPECT_EQ(complaint([&] { const Device device(api); }),
            "the plugin 'fake' cannot start, says its init: the driver is not loaded");
}

TEST(Device, UsesAnOlderPluginWithAShorterTable) {
  const Device device(shortened(offsetof(hcd_api, host_func)));
  EXPECT_TRUE(device.can_map());
  EXPECT_FALSE(device.can_queue_functions());
  EXPECT_FALSE(device.can_wait_on_words());
}

TEST(Device, IgnoresWhatANewerPluginAppends) {
  struct Newer {
    hcd_api api;
    void (*appended)();
  } newer{fake_device::make_api(), nullptr};
  newer.api.size = sizeof(newer);
  const Device device(newer.api);
  EXPECT_TRUE(device.can_wait_on_words());
}

TEST(Device, UsesAPluginOf1_1) {
  const Device device(shortened(offsetof(hcd_api, stream_create)));
  EXPECT_TRUE(device.can_wait_on_words());
  EXPECT_FALSE(device.can_make_streams() || device.can_record_events() ||
               device.can_copy_within() || device.can_reduce() || device.can_allocate() ||
               device.can_allocate_host() || device.can_register_host() ||
               device.can_export_files());
  EXPECT_EQ(device.make_stream(0, 0).error().message,
            "fake:0 cannot make a stream: its plugin has no stream_create");
  EXPECT_EQ(device.export_file(0, {}, 1).error().code, ErrorCode::kUnsupported);
}

TEST(Device, RefusesATableWithoutTheMandatoryEntries) {
  EXPECT_EQ(complaint([] { complete_table(shortened(offsetof(hcd_api, copy_h2d)), "/x.so"); }),
            "the plugin 'fake' (/x.so) lacks the mandatory entry copy_h2d; ask its vendor");
  EXPECT_EQ(complaint([] { complete_table(shortened(sizeof(size_t))); }),
            "the plugin that was asked for its table does not say its name; ask its vendor");
  EXPECT_EQ(complaint([] { complete_table(shortened(offsetof(hcd_api, unmap))); }),
            "the plugin 'fake' has map but not unmap, which go together; ask its vendor");
  hcd_api api = fake_device::make_api();
  api.event_query = nullptr;
  EXPECT_EQ(
      complaint([&] { complete_table(api); }),
      "the plugin 'fake' has event_record but not event_query, which go together; ask its vendor");
}

TEST(Device, RefusesATableWhoseSizeCannotBe) {
  for (const size_t size : {size_t{0}, size_t{5}, size_t{1} << 40, sizeof(hcd_api) - 1}) {
    EXPECT_EQ(complaint([&] { complete_table(shortened(size), "/x.so"); }),
              "the plugin that was asked for its table (/x.so) says that the table has " +
                  std::to_string(size) +
                  " bytes: its first member must be sizeof(hcd_api); ask its vendor");
  }
}

TEST(Device, PassesOverExtensionsThatItDoesNotKnow) {
  static hcd_dmabuf good{{sizeof(hcd_dmabuf), HCD_EXTENSION_DMABUF, nullptr},
                         [](int, hcd_ref, size_t, int*, uint64_t*) {
                           return fake_device::fail(HCD_INVALID, "no such memory");
                         }};
  static const hcd_extension too_short{sizeof(hcd_extension), HCD_EXTENSION_DMABUF, &good.head};
  static const hcd_extension vendors_own{sizeof(hcd_extension), 0x10001, &too_short};
  hcd_api api = fake_device::make_api();
  api.extensions = &vendors_own;
  const Device device(api);
  EXPECT_TRUE(device.can_export_files());
  EXPECT_EQ(device.export_file(0, {}, 1).error().message,
            "fake:0 could not export memory to other devices (export_fd of its plugin): "
            "no such memory");
}

TEST(Device, RefusesAnotherMajorVersion) {
  const hcd_get_api_fn future = [](int major, int) -> const hcd_api* {
    return major == 9 ? &fake_device::api() : nullptr;
  };
  EXPECT_EQ(complaint([&] { negotiate(future, "/opt/vendor/plugin.so"); }),
            "the device plugin /opt/vendor/plugin.so does not speak version 1 of the plugin "
            "interface; install a "
            "version of it that fits this hccl-like");
  const hcd_get_api_fn present = [](int major, int minor) -> const hcd_api* {
    return major == HCD_MAJOR && minor == HCD_MINOR ? &fake_device::api() : nullptr;
  };
  EXPECT_EQ(&negotiate(present, "here"), &fake_device::api());
}

TEST(Device, SaysWhyALibraryDoesNotLoad) {
  EXPECT_EQ(complaint([] { Device::load("/nowhere/plugin.so"); }),
            "cannot load the device plugin /nowhere/plugin.so: /nowhere/plugin.so: cannot open "
            "shared object file: No "
            "such file or directory");
  EXPECT_EQ(complaint([] { Device::load("libm.so.6"); }),
            "libm.so.6 is not a device plugin: it does not export hcd_get_api");
}

}  // namespace
}  // namespace hccl_like
