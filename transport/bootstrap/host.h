#pragma once
// What identifies this host, for deciding whether shared memory can work.
#include <string>
#include <string_view>

namespace hccl_like {

// The kernel's boot id and the network and user name spaces of this process. Equal between two
// processes: abstract UNIX sockets reach from one to the other, loopback addresses mean the same,
// and user ids can be compared. It is a hint: cloned virtual machines can share all of it, so what
// it promises is tried and may fail.
std::string host_id();

// The machine of a host_id(): what containers that share a kernel have in common.
std::string_view machine_of(std::string_view host_id);

// The host's name as the kernel knows it, for people. Never looked up anywhere.
std::string host_name();

}  // namespace hccl_like
