#pragma once
#include <string>

namespace gpumem::test {

/// Printed before the words of a broken rule: how to repeat the run. For the whole program.
void set_story(const std::string& story);

/// Says what happened, and ends the program: what is broken may be another thread's, and nothing that follows
/// would mean anything.
[[noreturn]] void broken_rule(const std::string& words);

}  // namespace gpumem::test
