/* Callers see no more of it than its name. */
struct pool;
struct pool *pool_new(int size);
int pool_use(struct pool *p);
