uprobe0: 59 instructions
440b000  push rbx
440b001  push r13
440b003  push r14
440b005  mov rbx,rdi
440b008  lea rdi,[40A100h]
440b00f  mov rdi,[rdi+8]
440b013  cmp rdi,0
440b017  jne 000000000440B0F2h
440b01d  mov eax,fs:[2D0h]
440b025  mov r9d,[8]
440b02c  shl r9,20h
440b030  or rax,r9
440b033  mov r13,rax
440b036  lea rdi,[1080h]
440b03d  mov esi,28h
440b042  mov edx,0
440b047  call ring_reserve
440b04c  mov r14,rax
440b04f  cmp r14,0
440b053  je 000000000440B0D8h
440b059  mov edi,0
440b05e  mov [r14],edi
440b061  mov [r14+10h],r13
440b065  mov eax,fs:[0FFFFFFFFFFFFFF64h]
440b06d  cmp eax,4
440b070  sbb r11d,r11d
440b073  and eax,r11d
440b076  mov [r14+4],eax
440b07a  mov r11,[1000h]
440b081  shl r11,4
440b085  lea r9,[1040h]
440b08c  add r11,r9
440b08f  rdtsc
440b091  shl rdx,20h
440b095  or rax,rdx
440b098  mul qword ptr [r11]
440b09b  shrd rax,rdx,20h
440b0a0  add rax,[r11+8]
440b0a4  add rax,[1008h]
440b0ab  mov [r14+8],rax
440b0af  mov rdi,[rbx+70h]
440b0b3  mov [r14+18h],rdi
440b0b7  mov rdi,[rbx+68h]
440b0bb  mov [r14+20h],rdi
440b0bf  mov rdi,r14
440b0c2  mov esi,0
440b0c7  and dword ptr [rdi-8],7FFFFFFFh
440b0ce  mov eax,0
440b0d3  jmp 000000000440B0F7h
440b0d8  lea rdi,[40A1C0h]
440b0df  mov esi,1
440b0e4  lock add [rdi],rsi
440b0e8  mov eax,0
440b0ed  jmp 000000000440B0F7h
440b0f2  mov eax,0
440b0f7  pop r14
440b0f9  pop r13
440b0fb  pop rbx
440b0fc  ret

