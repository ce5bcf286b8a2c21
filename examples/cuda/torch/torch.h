/* The network of the simulated PyTorch. */
#ifndef TORCH_H
#define TORCH_H

void torch_open(void);
void torch_close(void);
/* Two kernels. */
void torch_layer(void);
/* For each layer four kernels: aten::mm twice, aten::threshold_backward, aten::add_. */
void torch_backward(void);
/* One kernel. */
void torch_step(void);
/* One kernel, in so many operators in each other. */
void torch_deep(int levels);
/* Tools that observe operators. */
int torch_observers(void);

#endif
