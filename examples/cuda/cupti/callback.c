/*
 * The subscriber, and its callbacks at the entry and exit of the driver's functions.
 *
 * Only functions whose number is known have callbacks (../driver: launches, launches of graphs, copies of rows, fills, waits, captures). Other domains
 * than the driver's are accepted and have none. There is one subscriber; a second one gets error 39, and with CUPTISIM_BUSY=1
 * the first one too.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "cuptisim.h"

enum { NUMBERS = 1024, WORD = 64, NAME_BYTES = 128 };

struct CUpti_Subscriber_st {
    bool active;
    CUpti_CallbackFunc function;
    void *userdata;
    char name[NAME_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUpti_Subscriber_st subscriber;
static _Atomic uint64_t enabled[NUMBERS / WORD]; /* numbers of the driver's domain */
static atomic_int running;                       /* callbacks, in all threads */
static _Thread_local int depth;                  /* callbacks, in this thread */
static _Thread_local bool leaving;               /* in a callback of an exit */

static bool is_enabled(uint32_t number) {
    return number < NUMBERS && atomic_load(&enabled[number / WORD]) >> number % WORD & 1;
}

bool callbacks_enabled(void) {
    for (int i = 0; i < NUMBERS / WORD; i++)
        if (atomic_load(&enabled[i])) return true;
    return false;
}

bool at_exit_site(void) {
    return leaving;
}

static void call_tool(struct observed_call *call, unsigned site) {
    CUpti_CallbackData data = {.callbackSite = site, .functionName = call->name, .context = call->context,
                               .contextUid = call->context_id, .correlationData = &call->user, .correlationId = call->correlation,
                               .functionReturnValue = site == CUPTI_API_EXIT ? &call->result : NULL};
    bool outer = leaving;
    leaving = site == CUPTI_API_EXIT;
    depth++;
    subscriber.function(subscriber.userdata, CUPTI_CB_DOMAIN_DRIVER_API, call->number, &data);
    depth--;
    leaving = outer;
}

/* `running` is raised before the second look at `enabled`: a thread that clears that and waits for 0 sees no callback begin. */
void call_entered(struct observed_call *call) {
    if (!is_enabled(call->number)) return;
    atomic_fetch_add(&running, 1);
    if (is_enabled(call->number)) {
        call->seen = true;
        call_tool(call, CUPTI_API_ENTER);
    }
    atomic_fetch_sub(&running, 1);
}

void call_left(struct observed_call *call) {
    if (!call->seen) return;
    atomic_fetch_add(&running, 1);
    if (is_enabled(call->number)) call_tool(call, CUPTI_API_EXIT);
    atomic_fetch_sub(&running, 1);
}

/* Not for ever: a callback may wait for something that this thread has. */
static void wait_for_others(void) {
    uint64_t end = now_ns() + 1000000000u;
    while (atomic_load(&running) > depth && now_ns() < end) sched_yield();
}

void callbacks_end(void) {
    for (int i = 0; i < NUMBERS / WORD; i++) atomic_store(&enabled[i], 0);
    wait_for_others();
    pthread_mutex_lock(&lock);
    subscriber.active = false;
    pthread_mutex_unlock(&lock);
}

static CUptiResult subscribe(CUpti_SubscriberHandle *out, CUpti_CallbackFunc callback, void *userdata, const char *name) {
    CUptiResult result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    pthread_mutex_lock(&lock);
    if (!subscriber.active && !env_number("CUPTISIM_BUSY")) {
        result = CUPTI_SUCCESS;
        subscriber.active = true;
        subscriber.function = callback;
        subscriber.userdata = userdata;
        snprintf(subscriber.name, sizeof subscriber.name, name ? "CUPTI for %s" : "CUPTI", name);
        *out = &subscriber;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORTED CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *out, CUpti_CallbackFunc callback, void *userdata) {
    TRY(ready());
    return out && callback ? subscribe(out, callback, userdata, NULL) : CUPTI_ERROR_INVALID_PARAMETER;
}

#if CUPTI_MAJOR >= 13
EXPORTED CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *out, CUpti_CallbackFunc callback, void *userdata,
                                       CUpti_SubscriberParams *params) {
    TRY(ready());
    if (!out || !callback || !params || params->structSize < sizeof *params) return CUPTI_ERROR_INVALID_PARAMETER;
    CUptiResult result = subscribe(out, callback, userdata, params->subscriberName);
    if (result && params->oldSubscriberName && params->oldSubscriberSize)
        snprintf(params->oldSubscriberName, params->oldSubscriberSize, "%s", subscriber.active ? subscriber.name : "simulated profiler");
    return result;
}
#endif

static CUptiResult check(CUpti_SubscriberHandle handle, unsigned domain) {
    TRY(ready());
    if (handle != &subscriber || !subscriber.active) return CUPTI_ERROR_INVALID_PARAMETER;
    return domain && domain < CUPTI_CB_DOMAINS ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

static void changed(void) {
    observe_driver(callbacks_enabled() || kinds_enabled());
}

EXPORTED CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle handle) {
    TRY(check(handle, CUPTI_CB_DOMAIN_DRIVER_API));
    callbacks_end();
    changed();
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle handle, unsigned domain, uint32_t number) {
    TRY(check(handle, domain));
    if (!number || number >= NUMBERS) return CUPTI_ERROR_INVALID_PARAMETER;
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API) return CUPTI_SUCCESS;
    uint64_t bit = 1ull << number % WORD;
    if (enable) atomic_fetch_or(&enabled[number / WORD], bit);
    else atomic_fetch_and(&enabled[number / WORD], ~bit);
    changed();
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle handle, unsigned domain) {
    TRY(check(handle, domain));
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API) return CUPTI_SUCCESS;
    for (int i = 0; i < NUMBERS / WORD; i++) atomic_store(&enabled[i], enable ? UINT64_MAX : 0);
    changed();
    return CUPTI_SUCCESS;
}

/* The functions that have callbacks. */
static const struct {
    uint32_t number;
    const char *name;
} functions[] = {
    {17, "cuCtxSynchronize"},      {121, "cuEventSynchronize"},      {126, "cuStreamSynchronize"},
    {295, "cuStreamWaitEvent"},    {800, "cuCtxSynchronize_v2"},
    {216, "cuMemsetD8Async"},      {218, "cuMemsetD16Async"},        {220, "cuMemsetD32Async"},
    {222, "cuMemsetD2D8Async"},    {224, "cuMemsetD2D16Async"},      {226, "cuMemsetD2D32Async"},
    {249, "cuMemsetD8_v2"},        {250, "cuMemsetD16_v2"},          {251, "cuMemsetD32_v2"},
    {252, "cuMemsetD2D8_v2"},      {253, "cuMemsetD2D16_v2"},        {254, "cuMemsetD2D32_v2"},
    {276, "cuMemcpyHtoD_v2"},      {277, "cuMemcpyHtoDAsync_v2"},    {278, "cuMemcpyDtoH_v2"},
    {279, "cuMemcpyDtoHAsync_v2"}, {280, "cuMemcpyDtoD_v2"},         {281, "cuMemcpyDtoDAsync_v2"},
    {305, "cuMemcpy"},             {306, "cuMemcpyAsync"},           {307, "cuLaunchKernel"},
    {418, "cuMemcpyAsync_ptsz"},
    {442, "cuLaunchKernel_ptsz"},  {477, "cuLaunchCooperativeKernel"}, {478, "cuLaunchCooperativeKernel_ptsz"},
    {497, "cuStreamEndCapture"},   {539, "cuStreamBeginCapture_v2"},
    {514, "cuGraphLaunch"},        {515, "cuGraphLaunch_ptsz"},      {652, "cuLaunchKernelEx"},
    {653, "cuLaunchKernelEx_ptsz"},
};

EXPORTED CUptiResult cuptiGetCallbackName(unsigned domain, uint32_t number, const char **name) {
    TRY(ready());
    if (!name) return CUPTI_ERROR_INVALID_PARAMETER;
    for (size_t i = 0; domain == CUPTI_CB_DOMAIN_DRIVER_API && i < sizeof functions / sizeof *functions; i++)
        if (functions[i].number == number) {
            *name = functions[i].name;
            return CUPTI_SUCCESS;
        }
    return CUPTI_ERROR_INVALID_PARAMETER;
}
