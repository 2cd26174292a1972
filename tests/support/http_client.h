#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "base/system/unique_fd.h"

namespace gpumem::test {

/// A connection to a Unix socket, or to a port of 127.0.0.1. It fails the test if nobody listens.
UniqueFd connect_to(const std::filesystem::path& socket);
UniqueFd connect_to_port(std::uint16_t port);

/// Sends all of it; false: the other end has closed the connection.
bool send_all(int socket, std::string_view bytes);
/// The bytes received until the peer closes the connection, or until tests give up.
std::string read_to_end(int socket);
/// The bytes received until they contain `words`, or as above.
std::string read_until(int socket, std::string_view words);
/// Whether the peer closes the connection before tests give up.
bool is_closed_soon(int socket);

inline constexpr std::string_view kScrape = "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n";
inline constexpr std::string_view kLastScrape =
    "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";

}  // namespace gpumem::test
