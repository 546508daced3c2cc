#pragma once
// Identifies this host, to decide whether shared memory can work.
#include <string>
#include <string_view>

namespace hccl_like {

// The kernel's boot id and this process's network and user name spaces. Equal ids mean that
// abstract UNIX sockets and loopback addresses are shared and user ids are comparable. Cloned
// virtual machines can have equal ids: try shared memory and expect that it may fail.
std::string host_id();

// The part of a host_id() that containers on one kernel share.
std::string_view machine_of(std::string_view host_id);

// The kernel's host name, for messages. Makes no name lookup.
std::string host_name();

}  // namespace hccl_like
