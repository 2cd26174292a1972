#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace gpumem::cli::top {

/// The hosts of `a,b,c`, each once. Errors in words; empty: none.
std::string hosts_of(const std::string& text, std::vector<std::string>& hosts);

/// Shows `gpumem top --once` of each host, by ssh, again and again until interrupted, or once. Returns the
/// exit status: 1 if a host has not answered.   Blocks.
int run_hosts(const std::vector<std::string>& hosts, std::size_t width, bool is_once);

}  // namespace gpumem::cli::top
