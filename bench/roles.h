#pragma once
#include <string>
#include <vector>

namespace gpumem::bench {

// Roles in which a benchmark starts this program again as a process of its own. Each reports when it is
// ready, and ends with its standard input.
using RoleArguments = std::vector<std::string>;

/// Sends every packet of a socket back. FD
void echo_packets(const RoleArguments& arguments);
/// Greets whoever connects to a listening socket (Greeter). FD
void greet(const RoleArguments& arguments);
/// A gRPC server with nothing behind it. SOCKET
void serve_empty_calls(const RoleArguments& arguments);
/// Holds sessions; at command 'c' each makes one call. FOLDER COUNT
void hold_sessions(const RoleArguments& arguments);
/// Holds leases of 2 MiB. FOLDER COUNT
void hold_leases(const RoleArguments& arguments);
/// Another user's allocator: at 'f' allocates so much and frees it, at 't' gives all back. FOLDER BYTES
void fill_and_free(const RoleArguments& arguments);
/// Grows and shrinks in many threads, each with a session of its own. FOLDER THREADS
void storm(const RoleArguments& arguments);
/// Holds sessions with slices, without memory. FOLDER SESSIONS SLICES
void hold_slices(const RoleArguments& arguments);
/// Between 's' and 'p' pages through the listing of sessions; tells how many slices it has listed. FOLDER
void list_sessions(const RoleArguments& arguments);

}  // namespace gpumem::bench
