#pragma once
#include <filesystem>
#include <string>

#include "base/system/unique_fd.h"

namespace gpumem::test {

/// A connection to a stream socket of the broker, by which nothing is said yet.
UniqueFd connect_to_stream(const std::filesystem::path& socket);

/// Sends what a client of HTTP/2 begins with.
void begin_http2(int socket);

/// Whether the other end has closed the connection, now.
bool is_cut(int socket);

}  // namespace gpumem::test
