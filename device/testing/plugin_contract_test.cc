#include "device/testing/plugin_contract.h"

#include <cstdlib>

#include "device/host/host_api.h"
#include "device/host/shared_pool.h"
#include "device/testing/fake_device.h"

namespace hccl_like {
namespace {

INSTANTIATE_TEST_SUITE_P(Host, PluginContract,
                         ::testing::Values(PluginUnderTest{.name = "Cpu",
                                                           .api = &host_api(),
                                                           .allocate = std::malloc,
                                                           .free = std::free,
                                                           .streams = {0}}),
                         plugin_name);

INSTANTIATE_TEST_SUITE_P(
    SharedHost, PluginContract,
    ::testing::Values(PluginUnderTest{
        .name = "Cpu",
        .api = &host_api(),
        .allocate = [](size_t bytes) { return SharedPool::of_process().allocate(bytes); },
        .free = [](void* base) { SharedPool::of_process().free(base); },
        .streams = {0}}),
    plugin_name);

INSTANTIATE_TEST_SUITE_P(Fake, PluginContract,
                         ::testing::Values(PluginUnderTest{.name = "Asynchronous",
                                                           .api = &fake_device::api(),
                                                           .allocate = fake_device::allocate,
                                                           .free = fake_device::free,
                                                           .streams = {0, fake_device::kStream}}),
                         plugin_name);

// Without host_func: functions are queued by words, which lie in the plugin's host memory or,
// without that, in ours.
const hcd_api& by_words(bool own_memory) {
  static const auto make = [](bool own) {
    hcd_api api = fake_device::make_api();
    api.host_func = nullptr;
    if (!own) api.host_alloc = nullptr, api.host_free = nullptr;
    return api;
  };
  static const hcd_api tables[] = {make(false), make(true)};
  return tables[own_memory ? 1 : 0];
}

PluginUnderTest under_test(std::string name, const hcd_api& api) {
  return {.name = std::move(name),
          .api = &api,
          .allocate = fake_device::allocate,
          .free = fake_device::free,
          .streams = {0, fake_device::kStream}};
}

INSTANTIATE_TEST_SUITE_P(FakeByWords, PluginContract,
                         ::testing::Values(under_test("InItsMemory", by_words(true)),
                                           under_test("InOurMemory", by_words(false))),
                         plugin_name);

}  // namespace
}  // namespace hccl_like
