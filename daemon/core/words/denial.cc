#include "daemon/core/words/denial.h"

#include <cstdio>

#include "base/text/device_name.h"
#include "base/text/missing_memory.h"

namespace gpumem::core {
namespace {

const std::string kEndAJob = "end one of the jobs that have reserved it (`gpumem job list`),";

std::string seconds(Duration duration) {
  char text[32] = {};
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

std::string holders_in_words(const Denial& denial) {
  constexpr std::size_t kNamed = 3;
  std::string words;
  for (std::size_t i = 0; i < denial.holders.size() && i < kNamed; ++i) {
    const Denial::Holder& holder = denial.holders[i];
    words += (i == 0 ? " (" : ", ");
    words += holder.pid != 0 ? "pid " + std::to_string(holder.pid)
                             : "session " + std::to_string(holder.session.value);
    words += " " + holder.command + " " + to_string(holder.charged);
  }
  if (denial.holders.size() > kNamed)
    words += " and " + std::to_string(denial.holders.size() - kNamed) + " more";
  return words.empty() ? words : words + ")";
}

// The part that no holder uses.
std::string reserved_in_words(const Denial& denial, Bytes reserved) {
  if (reserved.is_zero()) return {};
  const bool is_job = denial.limit == Denial::Limit::kJobs;
  return " (" + to_string(reserved) + " of it reserved by " + (is_job ? "its job" : "the tenant's jobs") +
         " and not used)";
}

std::string contexts_in_words(const Denial& denial) {
  if (denial.limiting_contexts.is_zero()) return {};
  return " (" + to_string(denial.limiting_contexts) + " of it by contexts of its programs)";
}

// The part that others below the limit may claim.
std::string kept_in_words(const Denial& denial) {
  if (denial.limiting_kept.is_zero()) return {};
  return " and " + to_string(denial.limiting_kept) + " are kept for guarantees of others below it";
}

std::string shortage_in_words(const Denial& denial) {
  std::string words =
      "of the pool of " + to_string(denial.pool) + ", " + to_string(denial.charged_to_others) +
      " are charged to other tenants and " + to_string(denial.charged) + " to this one" +
      reserved_in_words(denial, denial.reserved) + ", " + to_string(denial.free) + " are free";
  if (!denial.kept_for_others.is_zero()) {
    words += ", of which " + to_string(denial.kept_for_others) + " are kept for other tenants' guarantees";
  }
  if (const Bytes others = denial.missing.minus(denial.contexts); !others.is_zero())
    words += "; " + to_string(others) + " are missing at present, " + missing_because(denial.device);
  if (!denial.contexts.is_zero())
    words += "; " + to_string(denial.contexts) + " were given to the driver for contexts of programs";
  if (!denial.returning.is_zero()) words += "; " + to_string(denial.returning) + " are on their way back";
  if (!denial.asked_back.is_zero())
    words += "; borrowers are asked to give back " + to_string(denial.asked_back);
  if (denial.waiters_ahead != 0)
    words += "; requests that came before: " + std::to_string(denial.waiters_ahead);
  return words;
}

std::string unanswered_in_words(const Denial& denial) {
  if (denial.unanswered.is_zero()) return {};
  return "; " + to_string(denial.unanswered) +
         " of ended processes of this tenant are still in use, by processes that hold their descriptors: "
         "until "
         "these end, the tenant is lent nothing that is guaranteed to others";
}

std::string asked_in_words(const Denial& denial) {
  const std::string asked = to_string(denial.asked);
  if (!denial.context.is_zero())
    return asked + " that the driver lacks for a context of about " + to_string(denial.context);
  return denial.asked_min < denial.asked ? asked + " (at least " + to_string(denial.asked_min) + ")" : asked;
}

// A limit is the tenant's own, or that of one it belongs to.
std::string owner_in_words(const Denial& denial) {
  if (denial.limit == Denial::Limit::kJobs) return "its job's limit";
  if (denial.limit == Denial::Limit::kReserve)
    return "the bound on reservations of the tenant's jobs (`reserve`)";
  return denial.limiting_tenant == denial.tenant
             ? "the tenant's limit"
             : "the limit of '" + denial.limiting_tenant + "', which it belongs to,";
}

// The option of `gpumem run` that the job's limit comes from.
std::string option_in_words(const Denial& denial) {
  return denial.device == kHostStore ? "--host-limit" : "--limit";
}

// No giving back would help.
std::string excess_in_words(const Denial& denial) {
  if (denial.limit == Denial::Limit::kReserve)
    return to_string(denial.asked_min) + " is more than the " + to_string(denial.limiting_limit) +
           " that the tenant's jobs may reserve: start the command without --wait, or ask the administrator "
           "for "
           "a higher `reserve`";
  if (denial.limit == Denial::Limit::kJobs)
    return to_string(denial.asked_min) + " is more than the whole limit of its job, " +
           to_string(denial.limiting_limit) + ": ask for less, or start the command with a higher " +
           option_in_words(denial);
  const bool is_own = denial.limiting_tenant == denial.tenant;
  const std::string limit =
      (is_own ? "the whole limit"
              : "the whole limit of '" + denial.limiting_tenant + "', which the tenant belongs to,") +
      " of " + to_string(denial.limiting_limit);
  const bool is_pool = denial.limiting_limit == denial.pool;
  return to_string(denial.asked_min) + " is more than " + limit +
         (is_pool ? ", which is the whole pool: ask for less"
                  : ": ask for less, or ask the administrator for a higher limit");
}

std::string for_more_in_words(const Denial& denial) {
  switch (denial.limit) {
    case Denial::Limit::kJobs: return "start the command with a higher " + option_in_words(denial);
    case Denial::Limit::kReserve: return "ask the administrator for a higher `reserve`";
    case Denial::Limit::kTenants: break;
  }
  return "ask the administrator for a higher limit";
}

std::string obstacle_in_words(const Denial& denial) {
  switch (denial.reason) {
    case Denial::Reason::kSliceLimit:
      return "the slice would pass its own limit of " + to_string(denial.slice_limit) +
             "; open the slice with a higher limit, or start the program with a higher GPUMEM_LIMIT";
    case Denial::Reason::kTenantLimit:
      if (denial.asked_min > denial.limiting_limit) return excess_in_words(denial);
      if (denial.limit == Denial::Limit::kReserve)
        return "it would pass " + owner_in_words(denial) + " of " + to_string(denial.limiting_limit) +
               ", of which " + to_string(denial.limiting_charged) + " are reserved already; " + kEndAJob +
               " or " + for_more_in_words(denial);
      return "it would pass " + owner_in_words(denial) + " of " + to_string(denial.limiting_limit) +
             ", of which " + to_string(denial.limiting_charged) + " are charged already" +
             holders_in_words(denial) + contexts_in_words(denial) +
             reserved_in_words(denial, denial.limiting_reserved) + kept_in_words(denial) + "; " +
             (denial.by_jobs ? kEndAJob : "give memory back") + " or " + for_more_in_words(denial);
    case Denial::Reason::kDebt:
      return "nothing is granted while " + to_string(denial.limiting_charged) + " are charged against " +
             owner_in_words(denial) + " of " + to_string(denial.limiting_limit) + holders_in_words(denial) +
             contexts_in_words(denial) + "; give back what is over it";
    case Denial::Reason::kPoolSize:
      if (!denial.limiting_kept.is_zero())
        return owner_in_words(denial) + " is " + to_string(denial.limiting_limit) + ", of which " +
               to_string(denial.limiting_kept) + " are guaranteed to others below it: ask for " +
               to_string(denial.limiting_limit - denial.limiting_kept) +
               " at most, or ask the administrator for a higher limit or lower guarantees there";
      return "the whole pool of the device is " + to_string(denial.pool) + ", of which " +
             to_string(denial.guaranteed_to_others) + " are guaranteed to other tenants and " +
             to_string(denial.charged) + " are charged to this one" + holders_in_words(denial) +
             unanswered_in_words(denial);
    case Denial::Reason::kTurn: return "there is memory, but others are first; " + shortage_in_words(denial);
    case Denial::Reason::kNoMemory: return shortage_in_words(denial) + unanswered_in_words(denial);
  }
  return {};
}

// For memory. A request that was only read late is refused at once.
bool has_waited(const Denial& denial) {
  return denial.wait_limit != Duration::zero() && denial.waited > denial.unread;
}

}  // namespace

std::string explain(const Denial& denial) {
  const std::string head =
      "tenant '" + denial.tenant + "' asked for " + asked_in_words(denial) + " on " + denial.device_name;
  const bool by_lack = denial.reason == Denial::Reason::kNoMemory || denial.reason == Denial::Reason::kTurn;
  if (has_waited(denial))
    return head + " and waited " + seconds(denial.waited) + " in vain: " + obstacle_in_words(denial);
  return head + (by_lack ? " and may not wait: " : ": ") + obstacle_in_words(denial);
}

Code code_of(const Denial& denial) {
  return has_waited(denial) ? Code::kDeadlineExceeded : Code::kResourceExhausted;
}

}  // namespace gpumem::core
