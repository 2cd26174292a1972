#pragma once
#include <string>
#include <vector>

namespace gpumem {

/// `texts` as execve(2) and posix_spawn(3) take arguments and variables: good until `texts` changes.
inline std::vector<char*> exec_words(std::vector<std::string>& texts) {
  std::vector<char*> words;
  words.reserve(texts.size() + 1);
  for (std::string& text : texts) words.push_back(text.data());
  words.push_back(nullptr);
  return words;
}

}  // namespace gpumem
