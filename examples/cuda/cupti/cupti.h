/*
 * Prototypes of the functions of the simulated libcupti, under the names of the real one, and the numbers that they use.
 *
 * Written from facts (names, argument orders, numbers, sizes), not from NVIDIA's headers. Records are read by offset: the
 * layouts are those of CUDA 11.7 to 13.5, which only grow (release.c has the sizes, record.c the offsets).
 */
#ifndef CUPTI_H
#define CUPTI_H

#include <stddef.h>
#include <stdint.h>

#include "../include/cuda_types.h"

typedef enum {
    CUPTI_SUCCESS = 0,
    CUPTI_ERROR_INVALID_PARAMETER = 1,
    CUPTI_ERROR_INVALID_OPERATION = 7,
    CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
    CUPTI_ERROR_NOT_INITIALIZED = 15,
    CUPTI_ERROR_INVALID_KIND = 21,
    CUPTI_ERROR_NOT_SUPPORTED = 27,
    CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39,
} CUptiResult;

enum {
    CUPTI_ACTIVITY_KIND_MEMCPY = 1,
    CUPTI_ACTIVITY_KIND_MEMSET = 2,
    CUPTI_ACTIVITY_KIND_KERNEL = 3,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL = 10,
    CUPTI_ACTIVITY_KIND_OVERHEAD = 17,
    CUPTI_ACTIVITY_KIND_MEMCPY2 = 22,
    CUPTI_ACTIVITY_KIND_SYNCHRONIZATION = 38,
    CUPTI_ACTIVITY_KIND_GRAPH_TRACE = 51,
};
enum { CUPTI_CB_DOMAIN_DRIVER_API = 1, CUPTI_CB_DOMAIN_RUNTIME_API = 2, CUPTI_CB_DOMAINS = 8 };
enum { CUPTI_API_ENTER = 0, CUPTI_API_EXIT = 1 };
enum { CUPTI_ACTIVITY_FLAG_FLUSH_FORCED = 1 };
enum {
    CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE = 0,
    CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT = 2,
    CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER = 5,
    CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE = 6,
    CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED = 8,
    CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER = 9,
};

typedef struct CUpti_Subscriber_st *CUpti_SubscriberHandle;
typedef void (*CUpti_CallbackFunc)(void *userdata, unsigned domain, uint32_t cbid, const void *data);
typedef void (*CUpti_BuffersCallbackRequestFunc)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*CUpti_BuffersCallbackCompleteFunc)(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

/* What a callback of the driver's domain gets. */
typedef struct {
    unsigned callbackSite;
    const char *functionName;
    const void *functionParams; /* NULL here */
    void *functionReturnValue;  /* at the exit */
    const char *symbolName;     /* NULL here */
    CUcontext context;
    uint32_t contextUid;
    uint64_t *correlationData; /* a place for the tool, from the entry to the exit */
    uint32_t correlationId;
} CUpti_CallbackData;

/* From 13.0. On error 39, the name of the tool that has the subscription is written to oldSubscriberName. */
typedef struct {
    size_t structSize;
    const char *subscriberName;
    char *oldSubscriberName;
    size_t oldSubscriberSize;
} CUpti_SubscriberParams;

CUptiResult cuptiGetVersion(uint32_t *version);
CUptiResult cuptiGetResultString(CUptiResult result, const char **text);
CUptiResult cuptiGetTimestamp(uint64_t *timestamp);
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *userdata);
CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *userdata,
                              CUpti_SubscriberParams *params);
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber);
CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber, unsigned domain, uint32_t cbid);
CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber, unsigned domain);
CUptiResult cuptiGetCallbackName(unsigned domain, uint32_t cbid, const char **name);
CUptiResult cuptiFinalize(void);
CUptiResult cuptiActivityEnable(unsigned kind);
CUptiResult cuptiActivityDisable(unsigned kind);
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete);
CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record);
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped);
CUptiResult cuptiActivityFlushAll(uint32_t flag);
CUptiResult cuptiActivityFlushPeriod(uint32_t ms);
CUptiResult cuptiActivityGetAttribute(unsigned attribute, size_t *size, void *value);
CUptiResult cuptiActivitySetAttribute(unsigned attribute, size_t *size, void *value);

#endif
