#pragma once
#include <string>
#include <vector>

#include "tests/support/broker_process.h"
#include "tests/support/client_process.h"

namespace gpumem::test {

/// Whether programs can be started in PID namespaces of their own: by root, with unshare(1).
bool has_unshare();

/// Whether the kernel has a number for every process, which is the same in all namespaces (pidfs, Linux 6.9).
bool has_pidfs();

/// `program` as the first process of a PID namespace; the child is unshare(1), and ends with it. If
/// unshare(1) is killed, the program ends shortly after.
ChildOptions in_own_namespace(const std::filesystem::path& program, std::vector<std::string> arguments);

/// A program in `folder` that is gpumemd in a PID namespace of its own: BrokerOptions::program. It has no
/// pids for clients outside.
std::filesystem::path contained_gpumemd(const TemporaryFolder& folder);
/// SIGKILL. Returns when the broker has ended, too.
void kill_contained(BrokerProcess& broker);

/// The pid of a test client, by its ClientOptions::arguments: of the process in `contained` or
/// `contained-user`, or its own.
pid_t pid_of_contained(const ClientProcess& client);

}  // namespace gpumem::test
