uprobe0: 70 instructions
10000100  push rbx
10000101  push r13
10000103  push r14
10000105  mov rbx,rdi
10000108  lea rdi,[40A000h]
1000010f  mov rdi,[rdi+8]
10000113  cmp rdi,0
10000117  jne 0000000010000216h
1000011d  mov eax,fs:[2D0h]
10000125  mov edx,eax
10000127  mov r9d,[8]
1000012e  test r9d,r9d
10000131  jne 0000000010000149h
10000137  push rcx
10000138  mov eax,27h
1000013d  syscall
1000013f  pop rcx
10000140  mov [8],eax
10000146  mov r9d,eax
10000149  mov rax,r9
1000014c  shl rax,20h
10000150  or rax,rdx
10000153  mov r13,rax
10000156  lea rdi,[10000000h]
1000015d  mov esi,28h
10000162  mov edx,0
10000167  call ring_reserve
1000016c  mov r14,rax
1000016f  cmp r14,0
10000173  je 00000000100001FCh
10000179  mov edi,0
1000017e  mov [r14],edi
10000181  mov [r14+10h],r13
10000185  mov eax,fs:[0FFFFFFFFFFFFFF64h]
1000018d  cmp eax,4
10000190  sbb r11d,r11d
10000193  and eax,r11d
10000196  mov [r14+4],eax
1000019a  mov r11,[1000h]
100001a1  and r11d,1
100001a5  shl r11,4
100001a9  lea r9,[1040h]
100001b0  add r11,r9
100001b3  rdtsc
100001b5  shl rdx,20h
100001b9  or rax,rdx
100001bc  mul qword ptr [r11]
100001bf  shrd rax,rdx,20h
100001c4  add rax,[r11+8]
100001c8  add rax,[1008h]
100001cf  mov [r14+8],rax
100001d3  mov rdi,[rbx+70h]
100001d7  mov [r14+18h],rdi
100001db  mov rdi,[rbx+68h]
100001df  mov [r14+20h],rdi
100001e3  mov rdi,r14
100001e6  mov esi,0
100001eb  and dword ptr [rdi-8],7FFFFFFFh
100001f2  mov eax,0
100001f7  jmp 000000001000021Bh
100001fc  lea rdi,[40A040h]
10000203  mov esi,1
10000208  lock add [rdi],rsi
1000020c  mov eax,0
10000211  jmp 000000001000021Bh
10000216  mov eax,0
1000021b  pop r14
1000021d  pop r13
1000021f  pop rbx
10000220  ret

