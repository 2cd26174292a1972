#pragma once
#include <string>
#include <vector>

namespace gpumem::sim {

/// The words of a gpumem-sim command, its own name and FOLDER first.
using Words = std::vector<std::string>;

// The commands on a machine's control page. Each prints what it has to say and answers the exit status.
int add_fault_command(const Words& words);
int faults_command(const Words& words);
int heal_command(const Words& words);
int costs_command(const Words& words);
/// Not on the control page but on the table: makes less of a device be available.
int shrink_command(const Words& words);

}  // namespace gpumem::sim
