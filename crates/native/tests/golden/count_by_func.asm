uprobe0: 42 instructions
40d000  push rbp
40d001  mov rbp,rsp
40d004  sub rsp,10h
40d008  lea rsi,[40C100h]
40d00f  mov rsi,[rsi+8]
40d013  cmp rsi,0
40d017  jne 000000000040D0B2h
40d01d  mov rax,[rdi+0A8h]
40d024  mov [rbp-8],eax
40d027  lea rdi,[1080h]
40d02e  mov rsi,rbp
40d031  add rsi,0FFFFFFFFFFFFFFF8h
40d035  mov eax,[rsi]
40d037  cmp eax,100h
40d03d  jae 000000000040D076h
40d043  imul rax,8
40d04a  mov r9d,fs:[0FFFFFFFFFFFFFF64h]
40d053  cmp r9d,4
40d057  sbb r11d,r11d
40d05a  and r9d,r11d
40d05d  imul r9,800h
40d064  add rax,r9
40d067  lea r11,[1100h]
40d06e  add rax,r11
40d071  jmp 000000000040D078h
40d076  xor eax,eax
40d078  mov rdi,rax
40d07b  cmp rax,0
40d07f  je 000000000040D098h
40d085  mov esi,1
40d08a  lock add [rdi],rsi
40d08e  mov eax,0
40d093  jmp 000000000040D0B7h
40d098  lea rdi,[40C1C0h]
40d09f  mov esi,1
40d0a4  lock add [rdi],rsi
40d0a8  mov eax,0
40d0ad  jmp 000000000040D0B7h
40d0b2  mov eax,0
40d0b7  add rsp,10h
40d0bb  pop rbp
40d0bc  ret

