#pragma once
// Every algorithm as a pure function of rank, size and root, in the file of its name. Those with
// Hosts need hosts.nested(). algorithms.h defines chunk numbers and access rules.
#include "collectives/schedule/schedule.h"
#include "collectives/topology/hosts.h"

namespace hccl_like {

Schedule allreduce_one_shot(int rank, int size);
Schedule allreduce_direct(int rank, int size);
Schedule allreduce_recursive_doubling(int rank, int size);
Schedule allreduce_rabenseifner(int rank, int size);
Schedule allreduce_ring(int rank, int size);
Schedule allreduce_leaders_one_shot(int rank, const Hosts& hosts);
Schedule allreduce_leaders_doubling(int rank, const Hosts& hosts);
Schedule allreduce_rails_direct(int rank, const Hosts& hosts);
Schedule allreduce_rails_rabenseifner(int rank, const Hosts& hosts);
Schedule allreduce_rails_ring(int rank, const Hosts& hosts);

Schedule reduce_scatter_direct(int rank, int size);
Schedule reduce_scatter_recursive_halving(int rank, int size);  // powers of two
Schedule reduce_scatter_ring(int rank, int size);
Schedule reduce_scatter_leaders_direct(int rank, const Hosts& hosts);
Schedule reduce_scatter_rails_direct(int rank, const Hosts& hosts);
Schedule reduce_scatter_rails_ring(int rank, const Hosts& hosts);

Schedule allgather_direct(int rank, int size);
Schedule allgather_bruck(int rank, int size);
Schedule allgather_ring(int rank, int size);
Schedule allgather_leaders_bruck(int rank, const Hosts& hosts);
Schedule allgather_rails_direct(int rank, const Hosts& hosts);
Schedule allgather_rails_ring(int rank, const Hosts& hosts);

Schedule broadcast_binomial(int rank, int size, int root);
Schedule broadcast_scatter_allgather(int rank, int size, int root);
Schedule broadcast_chain(int rank, int size, int root);
Schedule broadcast_leaders_binomial(int rank, const Hosts& hosts, int root);
Schedule broadcast_rails_chain(int rank, const Hosts& hosts, int root);
Schedule broadcast_rails_scatter_allgather(int rank, const Hosts& hosts, int root);

Schedule reduce_binomial(int rank, int size, int root);
Schedule reduce_direct(int rank, int size, int root);
Schedule reduce_chain(int rank, int size, int root);
Schedule reduce_leaders_binomial(int rank, const Hosts& hosts, int root);
Schedule reduce_rails_chain(int rank, const Hosts& hosts, int root);

Schedule gather_direct(int rank, int size, int root);
Schedule scatter_direct(int rank, int size, int root);

Schedule alltoall_direct(int rank, int size);
Schedule alltoall_pairwise(int rank, int size);
Schedule alltoall_bruck(int rank, int size);            // chunks of one size
Schedule alltoall_rails(int rank, const Hosts& hosts);  // chunks of one size

Schedule barrier_dissemination(int rank, int size);
Schedule barrier_leaders(int rank, const Hosts& hosts);

Schedule send_to(int peer);
Schedule recv_from(int peer);

}  // namespace hccl_like
