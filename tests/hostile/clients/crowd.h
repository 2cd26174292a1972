#pragma once
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/child.h"

namespace gpumem::test {

/// Hostile clients (hostile_client.cc) of several users. As many live as there are to be: one that ends is
/// replaced. Each must end by a signal, the broker's or the crowd's own.
class Crowd {
 public:
  struct Account {
    User user;
    std::string tenant;
  };
  struct Options {
    std::string runtime_folder;
    std::vector<Account> accounts;  ///< in turns; each asks also about the next one's tenant
    std::size_t size = 10;
    unsigned seed = 0;
    int nice = 0;               ///< above this process's own niceness
    std::filesystem::path log;  ///< for what they do and say
  };
  explicit Crowd(Options options);

  /// Suspends one, resumes one, or kills one, at random; replaces those that have ended.
  void stir();
  /// Kills all.
  void end();

  /// How often each act came to what it was for, and what became of the clients.
  std::map<std::string, int> acts() const;
  int suspended() const { return suspended_; }
  int killed() const { return killed_; }
  int ended_by_broker() const { return ended_by_broker_; }

 private:
  struct Member {
    std::unique_ptr<Child> child;
    bool stopped = false;
    bool killed = false;  ///< by the crowd
  };
  void start(std::size_t index);
  void note_end(Member& member);

  Options options_;
  std::mt19937 random_;
  UniqueFd log_;
  std::vector<Member> members_;
  int suspended_ = 0;
  int killed_ = 0;
  int ended_by_broker_ = 0;
};

}  // namespace gpumem::test
