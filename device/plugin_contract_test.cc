#include "device/plugin_contract.h"

#include <cstdlib>

#include "device/fake_device.h"
#include "device/host/host_api.h"
#include "device/host/shared_pool.h"

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

}  // namespace
}  // namespace hccl_like
